"""What real servers and networks do to a bank on object storage, and what people type."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from concal.bank.bank import Bank
from concal.bank.store import cloud, upkeep
from concal.bank.store.fate import decide
from concal.bank.store.objects import is_cloud
from concal.bank.store.parquet import read_bytes
from concal.bank.store.store import Store
from concal.bank.store.transaction import Conflict, Transaction, create_store
from concal.bank.store.upkeep import prune, verify
from concal.errors import BankError

from .conftest import commit_text, first_snapshot, next_snapshot
from .places import ENVIRONMENT, Proxy, forget_cache, overwrite
from .programme import SPEC, fake_calibrator, items_table, responses_table
from .servers import NotHere, ministack_server, write_account
from .test_store import release


@pytest.fixture
def proxy(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.address)
        yield made  # type: ignore[misc]


def test_servers_that_overwrite_are_refused(proxy: Proxy, bucket: str) -> None:
    proxy.rule = lambda method, path, count: "blind"
    with pytest.raises(BankError, match="overwrites all the same"):
        Bank.create(bucket, SPEC)
    assert Store.open(bucket).objects.files("") == [], "nothing is left"


def test_one_own_write_that_landed_before_a_lost_answer(proxy: Proxy, bucket: str) -> None:
    store = create_store(bucket, first_snapshot)
    lost: list[str] = []

    def rule(method: str, path: str, count: int) -> str | None:
        if method == "PUT" and "/snapshots/" in path and not lost:
            lost.append(path)
            return "lost"
        return None

    proxy.rule = rule
    assert commit_text(store, "one", "1").number == 1
    assert lost
    assert store.numbers() == [0, 1]
    assert verify(store).ok


def test_409_means_again_not_taken(proxy: Proxy, bucket: str) -> None:
    store = create_store(bucket, first_snapshot)
    met: list[str] = []

    def rule(method: str, path: str, count: int) -> str | None:
        if method == "PUT" and "/snapshots/" in path and len(met) < 3:
            met.append(path)
            return "409"
        return None

    proxy.rule = rule
    assert commit_text(store, "one", "1").number == 1
    assert len(met) == 3


def test_a_server_that_refuses_every_third_request(proxy: Proxy, bucket: str) -> None:
    proxy.rule = lambda method, path, count: "503" if count % 3 == 0 else None
    bank = Bank.create(bucket, SPEC)
    bank.add("Q1", responses_table("Q1"), items_table(), calibrator=fake_calibrator)
    forget_cache(bank._store)
    again = Bank(bucket)
    assert again.version == 1
    assert again.items().equals(bank.items())
    assert again.verify().ok


def test_answers_that_are_cut_in_the_middle(proxy: Proxy, bucket: str) -> None:
    store = create_store(bucket, first_snapshot)
    commit_text(store, "one", "1" * 1000)
    forget_cache(store)
    cut: list[str] = []

    def rule(method: str, path: str, count: int) -> str | None:
        if method == "GET" and "/data/" in path and len(cut) < 2:
            cut.append(path)
            return "cut"
        return None

    proxy.rule = rule
    assert read_bytes(store, store.head().state["one"]) == b"1" * 1000
    assert len(cut) == 2


def test_a_commit_that_cannot_be_finished_leaves_the_old_version(
    proxy: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = create_store(bucket, first_snapshot)
    monkeypatch.setattr(cloud, "PATIENCE", 0.5)
    proxy.rule = lambda method, path, count: "503" if method == "PUT" and "/snapshots/" in path else None
    with pytest.raises(BankError, match="went on refusing"):
        commit_text(store, "one", "1")
    proxy.rule = lambda method, path, count: None
    assert store.numbers() == [0]
    assert verify(store).unknown, "its manifest might still have been on the way"
    prune(store, grace_days=0)
    assert verify(store).unknown, "a commit under way is spared, whatever its age"
    commit_text(store, "two", "2")
    prune(store, grace_days=0)
    assert not verify(store).unknown
    assert verify(store).ok


@pytest.mark.parametrize("first", ["release", "prune"])
def test_of_prune_and_release_at_the_same_time_one_wins(
    first: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = create_store(bucket, first_snapshot)
    commit_text(store, "same", "a")
    commit_text(store, "same", "b")
    refused: list[str] = []

    def meanwhile(given: Store, number: int, word: bytes) -> bool:
        if first == "prune":
            decide(given, number, word)
        if number == 1:
            try:
                release(store, "late", 1)
            except BankError as error:
                refused.append(str(error))
        return decide(given, number, word)

    monkeypatch.setattr(upkeep, "decide", meanwhile)
    done = prune(store, keep=1, grace_days=0)
    if first == "release":
        assert done.versions == (0,)
        assert read_bytes(store, store.release("late").state["same"]) == b"a"
    else:
        assert done.versions == (0, 1)
        assert "just being pruned" in refused[0]
        assert store.release_names() == []
    assert verify(store).ok


def test_a_prune_that_was_cut_off_is_finished_by_the_next(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = create_store(bucket, first_snapshot)
    commit_text(store, "same", "a")
    commit_text(store, "same", "b")
    with monkeypatch.context() as killed:
        killed.setattr(cloud.CloudObjects, "forget", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prune(store, keep=1, grace_days=0)
    assert verify(store).ok
    with pytest.raises(BankError, match="cut off"):
        release(store, "late", 1)
    assert prune(store, keep=1, grace_days=0).versions == (0, 1)
    assert [f.name for f in store.objects.files("work")] == []
    assert verify(store).ok
    assert not verify(store).unknown


def test_prune_leaves_jobs_that_live(bucket: str) -> None:
    store = create_store(bucket, first_snapshot)
    store.objects.put("work/job-ab12/job.json", b"{}")
    store.objects.put("work/calibration-Q1-ab12/checkpoint.npz", b"x")
    prune(store, grace_days=0)
    assert len(store.objects.files("work")) == 2
    now = time.time()
    assert upkeep._stale_jobs(store, now - 1000) == []
    assert len(upkeep._stale_jobs(store, now + 1000)) == 2


def test_a_writer_that_slept_through_a_prune_does_not_get_an_old_number(bucket: str) -> None:
    store = create_store(bucket, first_snapshot)
    head = store.head()
    with Transaction.begin(store) as slow:
        draft = next_snapshot(head, store, slow)
        commit_text(store, "one", "1")
        commit_text(store, "two", "2")
        prune(store, keep=1, grace_days=0)
        assert not store.objects.create(store.snapshot_name(draft.number), b"late", slow.folder)
    assert store.numbers() == [2]


def test_two_creations_make_one_bank(bucket: str) -> None:
    failed: list[str] = []

    def create() -> None:
        try:
            create_store(bucket, first_snapshot)
        except BankError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 3
    assert all("bank already" in text for text in failed)
    assert verify(Store.open(bucket)).ok


def test_reads_come_from_the_cache_and_a_damaged_cache_does_no_harm(proxy: Proxy, bucket: str) -> None:
    bank = Bank.create(bucket, SPEC)
    bank.add("Q1", responses_table("Q1"), items_table(), calibrator=fake_calibrator)
    bank.calibration("Q1")
    whole, part = bank.calibration("Q1"), bank.period_draws("Q1", ["v01"])
    proxy.seen.clear()
    bank.calibration("Q1")
    bank.period_draws("Q1", ["v01"])
    assert [s for s in proxy.seen if "/data/" in s] == []
    cache = bank._store.cache
    assert cache is not None
    for path in cache.root.glob("??/*"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    again = bank.calibration("Q1")
    for name, group in whole.groups.items():
        assert (again.groups[name].xi == group.xi).all()
    assert (bank.period_draws("Q1", ["v01"])["v01"] == part["v01"]).all()
    cache.shrink(0)
    assert list(cache.root.glob("??/*")) == []


def test_credentials_are_never_shown(
    proxy: Proxy, bucket: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = create_store(bucket, first_snapshot)
    proxy.rule = lambda method, path, count: "denied"
    with pytest.raises(BankError, match="access is refused") as caught:
        commit_text(store, "one", "1")
    proxy.rule = lambda method, path, count: None
    texts = [str(caught.value), repr(caught.value), str(caught.value.__cause__), capfd.readouterr().err]
    texts += [r.getMessage() for r in caplog.records if r.name.startswith("concal")]
    texts += [store.objects.read(f.name).decode() for f in store.objects.files("snapshots")]
    assert not any(value in text for text in texts for value in (ENVIRONMENT["AWS_SECRET_ACCESS_KEY"], "AKIATEST"))


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("http://host/bank", "cannot be at http"),
        ("file:///tmp/bank", "cannot be at file"),
        ("folder/s3://bucket/bank", "mixes a folder with an address"),
        ("s3:/bucket/bank", "as text"),
        (Path("s3://bucket/bank"), "as text"),
        ("s3://", "not a bank's address"),
        ("s3://bucket/../other", "not a bank's address"),
        ("s3://bucket//x", "not a bank's address"),
        ("s3://bucket/a b", "not a bank's address"),
    ],
)
def test_places_that_are_none(place: str | Path, what: str) -> None:
    with pytest.raises(BankError, match=what):
        Bank(place)


def test_keys_in_an_address_are_not_repeated() -> None:
    with pytest.raises(BankError, match="no keys in it") as caught:
        Bank("s3://key:hunter2@bucket/bank")
    assert "hunter2" not in str(caught.value)


def test_folders_with_odd_names_are_folders() -> None:
    assert not any(map(is_cloud, ["bank", "C:\\banks\\english", "a:b", "s3", Path("x/y")]))


def test_nobody_answers(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "FIRST_CONTACT", 1.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(BankError, match="nobody answers there"):
        Bank(bucket)


def test_no_such_bucket_and_no_credentials(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BankError, match="no such bucket"):
        Bank.create("s3://nowhere-to-be-found/bank", SPEC)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(BankError, match="no credentials"):
        Bank.create(bucket, SPEC)


KEY = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": "aGVsbG8="}


@pytest.mark.parametrize(
    ("place", "environment", "what"),
    [
        ("az://banks/bank", {}, "no credentials for it.*AZURE_STORAGE_ACCOUNT_NAME"),
        ("az://banks/bank", {**KEY, "AZURE_STORAGE_ACCOUNT_KEY": "hunter2!"}, "none that can be read.*AZURE_STORAGE"),
        ("az://banks/bank", {**KEY, "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:9/account"}, "nobody answers there"),
        ("gs://banks/bank", {"GOOGLE_SERVICE_ACCOUNT": "{folder}/none.json"}, "no credentials for it.*GOOGLE_APPL"),
        ("gs://banks/bank", {"GOOGLE_SERVICE_ACCOUNT": "{folder}/broken.json"}, "none that can be read"),
        ("gs://banks/bank", {"GOOGLE_SERVICE_ACCOUNT": "{folder}/nobody.json"}, "nobody answers there.*gcs_base_url"),
    ],
)
def test_other_providers_that_cannot_be_used(
    place: str, environment: dict[str, str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(cloud, "FIRST_CONTACT", 1.0)
    (tmp_path / "broken.json").write_text("hunter2!")
    write_account(tmp_path / "nobody.json", "http://127.0.0.1:9")
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("{folder}", str(tmp_path)))
    start = time.monotonic()
    with pytest.raises(BankError, match=what) as caught:
        Bank(place)
    assert time.monotonic() - start < 10
    assert "hunter2" not in str(caught.value)


def test_a_bucket_that_cannot_be_written_to(proxy: Proxy, bucket: str) -> None:
    proxy.rule = lambda method, path, count: "denied" if method == "PUT" else None
    with pytest.raises(BankError, match="access is refused"):
        Bank.create(bucket, SPEC)


def test_a_prefix_that_holds_something_else(bucket: str) -> None:
    overwrite(Store.open(bucket), "thesis.txt", b"dear")
    with pytest.raises(BankError, match=r"not empty and not a bank \('thesis.txt'\)|not empty and not a bank"):
        Bank.create(bucket, SPEC)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def blocked(name: str, *rest: object) -> object:
        if name.startswith("obstore"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", blocked)
    with pytest.raises(BankError, match=r"concal\[cloud\]"):
        Bank("s3://bucket/bank")


@pytest.mark.parametrize("server", ["rclone", "s3rver"])
def test_servers_known_to_overwrite_are_refused(server: str, use: Callable[[str], str]) -> None:
    place = use(server)
    with pytest.raises(BankError, match="overwrites all the same"):
        Bank.create(place, SPEC)
    assert Store.open(place).objects.files("") == [], "nothing is left"


@pytest.mark.parametrize("server", ["ministack", "azure", "google"])
def test_a_bank_on_every_kind_of_storage(server: str, use: Callable[[str], str]) -> None:
    place = use(server)
    store = create_store(place, first_snapshot)
    with pytest.raises(BankError, match="bank already"):
        create_store(place, first_snapshot)
    head = store.head()
    with Transaction.begin(store) as slow:
        draft = next_snapshot(head, store, slow)
        commit_text(store, "one", "1" * 1000)
        with pytest.raises(Conflict):
            slow.commit(draft)
    commit_text(store, "one", "2")
    release(store, "fall", 1)
    forget_cache(store)
    assert read_bytes(store, store.release("fall").state["one"]) == b"1" * 1000
    assert prune(store, keep=1, grace_days=0).versions == (0,)
    assert store.numbers() == [1, 2]
    assert verify(Store.open(place)) == verify(store)
    assert verify(store).ok
    with pytest.raises(BankError, match="no such bucket"):
        Bank.create(f"{place.split(':')[0]}://nowhere-to-be-found/bank", SPEC)


def test_what_a_server_persists_is_there_when_it_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "server").mkdir()
    for life in range(2):
        try:
            server = ministack_server(tmp_path / "server")
            with server as found:
                for variable, value in found.environment.items():
                    monkeypatch.setenv(variable, value)
                if life == 0:
                    commit_text(create_store(f"{found.bucket}/kept", first_snapshot), "one", "1")
                else:
                    assert verify(Store.open(f"{found.bucket}/kept")).ok
        except NotHere as error:
            pytest.skip(str(error))
    assert life == 1
