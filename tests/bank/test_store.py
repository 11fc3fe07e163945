"""Commits, conflicts, releases, upkeep of the bare store."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from concal.bank.store.commit import commit
from concal.bank.store.files import sha256
from concal.bank.store.folder import FolderWriter
from concal.bank.store.manifest import FORMAT, Release, Snapshot, parse_snapshot, to_bytes
from concal.bank.store.parquet import read_bytes
from concal.bank.store.store import Store
from concal.bank.store.transaction import Conflict, Transaction, add_release, create_store
from concal.bank.store.upkeep import prune, sweep, verify
from concal.errors import BankError, ConcalError

from .conftest import commit_text, first_snapshot, next_snapshot
from .places import Place, forget_cache, overwrite


def release(store: Store, name: str, number: int) -> None:
    digest = sha256(store.read_bytes_of_snapshot(number))
    add_release(
        store,
        Release(format=FORMAT, name=name, snapshot=number, sha256=digest, written="now", author="me", note=""),
    )


def test_commit_is_visible_and_old_versions_stay(store: Store) -> None:
    commit_text(store, "one", "1")
    commit_text(store, "two", "2")
    assert store.numbers() == [0, 1, 2]
    assert read_bytes(store, store.head().state["one"]) == b"1"
    assert set(store.snapshot(1).state) == {"one"}
    assert verify(store).ok
    assert os.listdir(store.work) == []


def test_only_one_of_two_writers_wins(store: Store) -> None:
    head = store.head()
    with Transaction.begin(store) as slow:
        commit_text(store, "fast", "1")
        path, _ = slow.place("note", "slow.txt")
        path.write_bytes(b"x")
        slow.publish()
        assert verify(store).unknown
        with pytest.raises(Conflict):
            slow.commit(next_snapshot(head, store, slow))
    assert store.head().action == "add fast"
    assert not verify(store).unknown, "the loser's files are gone"


def test_interrupt_after_the_link_keeps_the_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Transaction) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        commit_text(store, "one", "1")
    assert store.head().number == 1
    assert verify(store).ok


def test_create_refuses_a_bank(store: Store) -> None:
    with pytest.raises(BankError, match="is a bank already"):
        create_store(store.place, first_snapshot)
    assert store.numbers() == [0]


def test_create_refuses_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("dear")
    with pytest.raises(BankError, match="not empty"):
        create_store(tmp_path / "other", first_snapshot)
    (tmp_path / "file").write_text("")
    with pytest.raises(BankError, match="not a folder"):
        create_store(tmp_path / "file", first_snapshot)
    with pytest.raises(BankError, match="not a bank"):
        Store.open(tmp_path / "nowhere").head()


def test_interrupted_creation_can_be_repeated(place: Place) -> None:
    def killed(transaction: Transaction) -> object:
        first_snapshot(transaction)
        transaction.publish()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_store(place / "bank", killed)  # type: ignore[arg-type]
    with pytest.raises(BankError, match="run `concal init`"):
        Store.open(place / "bank").head()
    create_store(place / "bank", first_snapshot)
    store = Store.open(place / "bank")
    assert verify(store).ok
    sweep(store)
    assert not verify(store).unknown, "what the first attempt left"


def test_releases_are_never_rewritten(store: Store) -> None:
    commit_text(store, "one", "1")
    release(store, "fall", 1)
    commit_text(store, "two", "2")
    assert store.release("fall").number == 1
    with pytest.raises(BankError, match="never rewritten"):
        release(store, "fall", 2)
    with pytest.raises(BankError, match="no release 'spring'; releases: fall"):
        store.release("spring")


def test_release_notices_a_changed_snapshot(store: Store) -> None:
    commit_text(store, "one", "1")
    release(store, "fall", 1)
    content = json.loads(store.read_bytes_of_snapshot(1))
    overwrite(store, store.snapshot_name(1), to_bytes({**content, "action": "something else"}))
    with pytest.raises(BankError, match="not the one release 'fall' froze"):
        store.release("fall")


@pytest.mark.parametrize("name", ["../x", "", "a/b", "x" * 300, "CON", "nul.txt", "é", "a\u202eb", ".hidden", "a\n"])
def test_hostile_release_names(store: Store, name: str) -> None:
    with pytest.raises(ConcalError):
        store.release(name)
    assert store.objects.files("releases") == []


def test_sweep_clears_the_dead_and_spares_the_living(store: Store) -> None:
    with Transaction.begin(store) as living:
        dead = Transaction.begin(store)
        path, _ = dead.place("note", "x.txt")
        path.write_bytes(b"x")
        dead.publish()
        dead._lock.release()  # what the operating system does when a process is killed
        assert verify(store).unknown
        commit_text(store, "other", "1")  # without a lock for all, only then is it clear that the dead cannot commit
        sweep(store)
        assert living.folder.exists()
        assert not dead.folder.exists()
        assert not verify(store).unknown


def test_sweep_spares_what_was_committed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "finish", lambda self: self._lock.release())
    monkeypatch.setattr(Transaction, "__exit__", lambda *_: None)
    commit_text(store, "one", "1")
    assert os.listdir(store.work), "staging folder left as by a kill after the link"
    sweep(store)
    assert os.listdir(store.work) == []
    assert read_bytes(store, store.head().state["one"]) == b"1"


def test_prune_keeps_what_versions_and_releases_need(store: Store) -> None:
    for text in "abcd":
        commit_text(store, "same", text)
    release(store, "fall", 2)
    assert prune(store).files == ()
    store.objects.create("data/stray.txt", b"x", store.work)
    assert prune(store).files == (), "too young"
    assert prune(store, grace_days=0, dry_run=True).files == ("data/stray.txt",)
    assert store.objects.read("data/stray.txt") == b"x"
    done = prune(store, keep=1, grace_days=0)
    assert done.versions == (0, 1, 3)
    assert store.numbers() == [2, 4]
    assert verify(store).ok
    assert read_bytes(store, store.release("fall").state["same"]) == b"b"
    assert not verify(store).unknown
    commit_text(store, "same", "e")
    with pytest.raises(BankError, match="at least the newest"):
        prune(store, keep=0)


def test_sweep_judges_by_reference_when_the_version_is_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:  # after the link, before the staging folder is cleared
        killed.setattr(Transaction, "finish", lambda self: self._lock.release())
        killed.setattr(Transaction, "__exit__", lambda *_: None)
        commit_text(store, "one", "1")
    commit_text(store, "two", "2")
    prune(store, keep=1, grace_days=0)
    assert store.numbers() == [2]
    sweep(store)
    assert read_bytes(store, store.head().state["one"]) == b"1", "the head needs what a forgotten version brought"
    assert verify(store).ok


def test_prune_spares_a_commit_in_flight(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between bringing its files to data/ and creating its manifest nobody may remove them, however old they are."""
    pruned: list[threading.Thread] = []
    publish = Transaction.publish

    def published(self: Transaction) -> None:
        for path in (self.folder / "files").rglob("*"):
            os.utime(path, (0, 0))  # as adopted from the shelf of an old calibration
        publish(self)
        pruned.append(threading.Thread(target=prune, args=(store,), kwargs={"grace_days": 0}))
        pruned[0].start()
        pruned[0].join(0.3)

    monkeypatch.setattr(Transaction, "publish", published)
    commit_text(store, "one", "1")
    pruned[0].join()
    assert read_bytes(store, store.head().state["one"]) == b"1"
    assert verify(store).ok


def test_a_number_that_prune_freed_is_not_taken_again(store: Store) -> None:
    head = store.head()
    with Transaction.begin(store) as slow:
        draft = next_snapshot(head, store, slow)
        commit_text(store, "one", "1")
        commit_text(store, "two", "2")
        prune(store, keep=1, grace_days=0)
        assert store.numbers() == [2]
        with pytest.raises(Conflict):
            slow.commit(draft)
    assert store.numbers() == [2]


def test_what_fails_on_an_old_head_is_tried_on_the_new_one(store: Store) -> None:
    commit_text(store, "one", "1")
    heads: list[int] = []

    def build(head: Snapshot, transaction: Transaction) -> Snapshot:
        heads.append(head.number)
        if len(heads) == 1:
            commit_text(store, "one", "other")
            prune(store, keep=1, grace_days=0)
        read_bytes(store, head.state["one"])
        return next_snapshot(head, store, transaction)

    assert commit(store, build).number == 3
    assert heads == [1, 2]


def test_release_of_a_version_that_was_pruned_is_refused(store: Store) -> None:
    commit_text(store, "one", "1")
    bytes_of_0 = store.read_bytes_of_snapshot(0)
    prune(store, keep=1, grace_days=0)
    lost = Release(format=FORMAT, name="lost", snapshot=0, sha256=sha256(bytes_of_0), written="now", author="me")
    with pytest.raises(BankError, match="no version 0"):
        add_release(store, lost)


def test_a_file_of_a_version_that_was_pruned_is_not_damage(store: Store) -> None:
    commit_text(store, "one", "1")
    pinned = store.head()
    with Transaction.begin(store) as transaction:
        writer = FolderWriter(transaction, "note")
        writer.text("one", "one.txt", b"2")
        transaction.commit(next_snapshot(pinned, store, transaction, state=writer.files))
    prune(store, keep=1, grace_days=0)
    forget_cache(store)
    with pytest.raises(BankError, match=r"was pruned meanwhile \(versions 2 to 2 are there\); open the bank again"):
        read_bytes(store, pinned.state["one"])


@pytest.mark.parametrize("folder", ["releases", "data", "work"])
def test_a_copy_without_its_empty_folders_is_the_bank(tmp_path: Path, folder: str) -> None:
    """Version control keeps no empty folder."""
    store = create_store(tmp_path / "bank", first_snapshot)
    shutil.rmtree(tmp_path / "bank" / folder)
    assert store.release_names() == []
    assert store.releases() == {}
    assert verify(store).versions == 1
    commit_text(store, "one", "1")
    release(store, "first", 1)
    assert read_bytes(store, store.head().state["one"]) == b"1"
    assert store.release("first").number == 1
    assert store.release_names() == ["first"]


def test_two_prune_beside_a_writer_and_somebody_who_releases(store: Store) -> None:
    done, failed = threading.Event(), []

    def build(head: Snapshot, transaction: Transaction) -> Snapshot:
        writer = FolderWriter(transaction, "note")
        writer.text("same", "same.txt", str(head.number).encode())
        return next_snapshot(head, store, transaction, state=writer.files)

    def repeatedly(act: Callable[[], object], allowed: str = "^$") -> None:
        while not done.is_set():
            try:
                act()
            except Exception as error:
                if not re.search(allowed, str(error)):
                    failed.append(error)
                    return

    def release_some() -> None:
        number = store.numbers()[max(0, len(store.numbers()) - 2)]
        release(store, f"r{number}-{time.monotonic_ns()}", number)

    helpers = [
        threading.Thread(target=repeatedly, args=(lambda: prune(store, keep=1, grace_days=0),)),
        threading.Thread(target=repeatedly, args=(lambda: prune(store, keep=2, grace_days=0),)),
        threading.Thread(target=repeatedly, args=(release_some, "no version|being pruned")),
    ]
    for helper in helpers:
        helper.start()
    for _ in range(12):
        commit(store, build)
    done.set()
    for helper in helpers:
        helper.join()
    assert failed == []
    assert store.numbers()[-1] == 12
    found = verify(store)
    assert found.problems == ()
    released = [store.release(name) for name in store.release_names()]
    assert released
    assert all(read_bytes(store, s.state["same"]) == str(s.number - 1).encode() for s in released if s.number)
    prune(store, keep=1, grace_days=0)
    assert not verify(store).unknown


def test_prune_removes_only_data(store: Store) -> None:
    store.objects.create("notes.txt", b"mine", store.work)
    prune(store, grace_days=0)
    assert store.objects.read("notes.txt") == b"mine"


def test_copy_with_older_data_says_what_happened(tmp_path: Path) -> None:
    store = create_store(tmp_path / "bank", first_snapshot)
    shutil.copytree(tmp_path / "bank" / "data", tmp_path / "copy" / "data")
    commit_text(store, "one", "1")
    for folder in ("snapshots", "releases"):
        shutil.copytree(tmp_path / "bank" / folder, tmp_path / "copy" / folder)
    copy = Store.open(tmp_path / "copy")
    with pytest.raises(BankError, match=r"missing.*copy the bank again, snapshots and releases first, data last"):
        read_bytes(copy, copy.head().state["one"])


def test_the_way_to_version_0_is_durable_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    module = "concal.bank.store.folders"
    monkeypatch.setattr(f"{module}.sync_folder", lambda path: synced.append(Path(path)))
    monkeypatch.setattr(f"{module}.link_once", lambda staged, target: bool(synced.append(target) or True))
    create_store(tmp_path / "new" / "bank", first_snapshot)
    target = next(path for path in synced if path.suffix == ".json")
    assert set(synced[: synced.index(target)]) >= {tmp_path, tmp_path / "new", tmp_path / "new" / "bank"}


def changed(store: Store, **changes: object) -> None:
    number = store.numbers()[-1]
    content = json.loads(store.read_bytes_of_snapshot(number))
    overwrite(store, store.snapshot_name(number), to_bytes({**content, **changes}))


def test_newer_and_older_formats_are_refused_with_the_way_out(store: Store) -> None:
    changed(store, format=FORMAT + 1)
    with pytest.raises(BankError, match="upgrade concal"):
        store.head()
    changed(store, format=0)
    with pytest.raises(BankError, match="To convert"):
        store.head()


@pytest.mark.parametrize(
    "path",
    ["../../etc/passwd", "/etc/passwd", "data/../../x", "data/..", "snapshots/0.json", "data/a b", "data//x", "data"],
)
def test_manifest_that_points_outside_is_refused(store: Store, path: str) -> None:
    entry = {"path": path, "bytes": 1, "rows": None, "sha256": "0" * 64, "footer_sha256": None}
    changed(store, state={"x": entry})
    with pytest.raises(BankError, match="not a path inside"):
        store.head()


def test_symbolic_link_out_of_the_bank_is_refused(tmp_path: Path) -> None:
    store = create_store(tmp_path / "bank", first_snapshot)
    (tmp_path / "secret").write_bytes(b"1")
    commit_text(store, "one", "1")
    entry = store.head().state["one"]
    path = tmp_path / "bank" / entry.path
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(BankError, match="leads out of the bank"):
        read_bytes(store, entry)
    assert not verify(store).ok


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b'{"format": 1, "format": 1}'],
)
def test_hostile_manifests(store: Store, content: bytes) -> None:
    overwrite(store, store.snapshot_name(0), content)
    with pytest.raises(BankError, match=r"0\.json"):
        store.head()


def test_valid_checksum_does_not_make_a_valid_manifest(store: Store) -> None:
    for change in ({"number": -1}, {"periods": {"../x": {}}}, {"extra": 1}, {"bank": "x"}, {"number": True}):
        with pytest.raises(BankError):
            parse_snapshot(to_bytes({**store.head().model_dump(mode="json"), **change}), "manifest")
    changed(store, number=7)
    with pytest.raises(BankError, match="renamed or copied"):
        store.head()


def test_every_flipped_byte_and_truncation_of_a_manifest_is_noticed(store: Store) -> None:
    commit_text(store, "one", "1")
    good = store.read_bytes_of_snapshot(1)
    for k in range(len(good)):
        bad = bytearray(good)
        bad[k] ^= 1 << (k % 8)
        with pytest.raises(BankError, match="manifest"):
            parse_snapshot(bytes(bad), "manifest")
        with pytest.raises(BankError, match="manifest"):
            parse_snapshot(good[:k], "manifest")
    store.objects.create(store.snapshot_name(2), good, store.work)
    with pytest.raises(BankError, match="renamed or copied"):
        store.head()


def test_no_hard_links_is_refused_and_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = create_store(tmp_path / "bank", first_snapshot)

    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(BankError, match="no hard links"):
        commit_text(store, "one", "1")
    monkeypatch.undo()
    assert store.numbers() == [0]
    assert verify(store) == verify(store)
    assert not verify(store).unknown
