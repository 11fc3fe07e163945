"""Calibrations as jobs: in this process, on a cluster, side by side for a backlog; killed, refused, called off."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import concal
from concal.bank.bank import Bank
from concal.bank.jobs import cluster as clusters
from concal.bank.jobs import travel
from concal.bank.jobs.job import do_job, stop_job, write_job
from concal.bank.jobs.job_data import read_data
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import load_files, parse_json
from concal.bank.store.shelf import finished_on
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_calibration
from concal.calibration.known import guide_period
from concal.calibration.period import calibrate_period
from concal.calibration.sampler import Stopped
from concal.data.check import check_period
from concal.errors import BankError, ConvergenceError, DataError
from concal.evaluate.pooled import evaluate_bank
from concal.spec import Spec

from . import test_shards
from .places import Place, copy_bank
from .programme import SPEC, fake_calibrator, items_table, responses_table, same

distributed = pytest.importorskip("distributed", reason="needs concal[dask]")

QUICK = Spec.parse(
    {
        **SPEC.model_dump(),
        "linking": {
            "min_anchors": 3,
            "max_rhat": 50.0,
        },  # random responses, few sweeps: this is about the way, not the numbers
        "calibration": {
            "chains": 2,
            "draws": 100,
            "max_sweeps": 120,
            "min_ess": 1,
            "max_rhat": 50,
            "item_share": 0.1,
            "max_item_rhat": 50,
        },
    }
)


def files_of(folder: Path, periods: tuple[str, ...] = ("Q1", "Q2", "Q3")) -> Path:
    """A backlog on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    items_table().write_csv(folder / "items.csv")
    for k, period in enumerate(periods):
        responses_table(period, 2 * k, persons=40).write_csv(folder / f"{period}.csv")
    lines = [f"{period},{period}.csv,items.csv" for period in periods]
    (folder / "backlog.csv").write_text("\n".join(["period,responses,items", *lines]) + "\n")
    return folder / "backlog.csv"


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("calibrated here")


never.__qualname__ = "calibrate_period"


def equal_banks(one: Bank, two: Bank) -> None:
    assert one.period_names == two.period_names
    for name in one.period_names:
        left, right = one.calibration(name), two.calibration(name)
        for group in left.groups:
            np.testing.assert_array_equal(left.groups[group].xi, right.groups[group].xi)
            np.testing.assert_array_equal(left.groups[group].beta, right.groups[group].beta)
    assert one.items().equals(two.items())


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as local,
        distributed.Client(local) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """The backlog, added by hand."""
    folder = tmp_path_factory.mktemp("one_by_one")
    files_of(folder)
    bank = Bank.create(folder / "bank", QUICK)
    for period in ("Q1", "Q2", "Q3"):
        bank.add(period, folder / f"{period}.csv", folder / "items.csv", accept_unconverged=True)
    return bank


def test_a_job_holds_everything_a_calibration_depends_on(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "bank", SPEC)
    bank.add("Q1", responses_table("Q1"), items_table(), calibrator=fake_calibrator)
    data = check_period(responses_table("Q2", 2), items_table(), SPEC, period="Q2").data
    for given in (data, guide_period(data, bank.consensus().groups)):
        name = write_job(bank._store, given, SPEC, 7)
        folder = bank._store.work / name
        content = parse_json((folder / "job.json").read_bytes(), "job")
        entries = load_files(content["files"])
        same(read_data(FolderReader(Store.open(folder), entries)), given)


def test_a_job_that_is_called_off_ends_and_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concal.bank.jobs.job._LOOK_SECONDS", -1.0)
    bank = Bank.create(tmp_path / "bank", QUICK)
    data = check_period(responses_table("Q1"), items_table(), QUICK, period="Q1").data
    name = write_job(bank._store, data, QUICK, 7)
    stop_job(bank._store, name)
    with pytest.raises(Stopped):
        do_job(bank.path, name, lambda share, message: None)
    assert list(bank._store.work.glob("calibration-Q1-*/checkpoint.npz")), "what was sampled is kept"
    assert write_job(bank._store, data, QUICK, 7) == name
    assert do_job(bank.path, name, lambda share, message: None).startswith("calibration-Q1-")


def test_backfill_gives_what_adding_one_by_one_gives(
    place: Place, tmp_path: Path, client: Any, one_by_one: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = files_of(tmp_path / "files")
    bank = Bank.create(place / "bank", QUICK)
    told: list[str] = []
    with monkeypatch.context() as nothing_here:
        nothing_here.setattr("concal.bank.jobs.calibrating.calibrate_period", never)  # all of it happens in jobs
        nothing_here.setattr("concal.bank.building.link_periods.link_sources", never)
        done = bank.backfill(
            manifest,
            accept_unconverged=True,
            cluster=client,
            progress=lambda stage, share, message: told.append(stage),
        )
    assert [update.period for update in done] == ["Q1", "Q2", "Q3"]
    assert {"calibrate Q1", "calibrate Q2", "calibrate Q3", "link Q2", "link Q3"} <= set(told)
    equal_banks(bank, one_by_one)
    assert not [n for n in os.listdir(bank._store.work) if n.startswith(("job-", "calibration-", "link-"))]
    assert [file.name for file in bank._store.objects.files("work") if not file.name.startswith("work/fate")] == []
    assert bank.backfill(manifest) == []
    assert bank.verify().ok


def sweep_in(message: str) -> int:
    return int(message.split("sweep ")[1].split(",")[0])


def test_a_checkpoint_on_object_storage_goes_to_the_next_machine(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = check_period(responses_table("Q1"), items_table(), QUICK, period="Q1").data
    whole = calibrate_period(data, QUICK, seed=7)
    store = Bank.create(bucket, QUICK)._store
    name = write_job(store, data, QUICK, 7)
    with monkeypatch.context() as first:  # reports every ten sweeps, saves at once, is killed at sweep 60
        first.setenv("CONCAL_CACHE", str(tmp_path / "first"))
        first.setattr("concal.calibration.sampler.CHECKPOINT_SECONDS", -1.0)
        first.setattr("concal.calibration.sampler.LOST_AT_MOST", -1.0)
        first.setattr(travel, "SHARE", 1.0)

        def killed(share: float, message: str) -> None:
            if sweep_in(message) == 60:
                raise MemoryError

        with pytest.raises(MemoryError):
            do_job(bucket, name, killed)
    monkeypatch.setenv("CONCAL_CACHE", str(tmp_path / "second"))
    told: list[int] = []
    shelf = do_job(bucket, name, lambda share, message: told.append(sweep_in(message)))
    assert told[0] == 60, "the sweep after the last one that was saved and reported"
    there = Store.open(bucket)
    left = [f.name for f in there.objects.files("work") if f.name.endswith("checkpoint.npz")]
    assert bool(left) != whole.convergence.converged, "kept where more sweeps may be asked for"
    folder = there.work / shelf
    found = read_calibration(FolderReader(Store.open(folder), finished_on(folder)))  # type: ignore[arg-type]
    for group in whole.groups:
        np.testing.assert_array_equal(found.groups[group].xi, whole.groups[group].xi)


def test_putting_checkpoints_takes_a_bounded_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, put = [0.0], []

    class Slow:
        has_lock = False

        def put(self, name: str, content: Path) -> None:
            put.append(now[0])
            now[0] += 3.0

    class Bench:
        objects = Slow()

    monkeypatch.setattr(travel.time, "monotonic", lambda: now[0])
    travelling = travel.TravellingCheckpoint(Bench(), tmp_path)  # type: ignore[arg-type]
    travelling.send()
    assert put == [], "there is none yet"
    for second in range(600):
        travelling.path.write_bytes(bytes(second))
        os.utime(travelling.path, ns=(second, second))
        travelling.send()
        now[0] += 1.0
    assert len(put) >= 2
    assert 3.0 * len(put) <= 0.06 * now[0]
    sent = len(put)
    travelling.path.write_bytes(b"last")
    travelling.send(now=True)
    travelling.send(now=True)
    assert len(put) == sent + 1, "the same one is not put twice"


def test_a_backlog_stops_at_an_unconverged_period_and_does_not_calibrate_it_again(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = files_of(tmp_path / "files", ("Q1", "Q2"))
    bank = Bank.create(tmp_path / "bank", long_run(100))
    with pytest.raises(ConvergenceError, match=r"Q1.* has not converged"):
        bank.backfill(manifest, cluster=client)
    assert bank.version == 0
    monkeypatch.setattr("concal.bank.jobs.job.calibrate_period", never)
    with pytest.raises(ConvergenceError, match=r"Q1.* has not converged"):
        bank.backfill(manifest, cluster=client)
    monkeypatch.undo()
    done = bank.backfill(manifest, cluster=client, accept_unconverged=True, max_sweeps=200)
    assert all(update.convergence is not None and update.convergence.sweeps >= 200 for update in done)
    assert len(done) == 2


def test_backfill_without_a_cluster_goes_on_where_it_was(tmp_path: Path, one_by_one: Bank) -> None:
    manifest = files_of(tmp_path)
    bank = Bank.create(tmp_path / "bank", QUICK)
    bank.add("Q1", tmp_path / "Q1.csv", tmp_path / "items.csv", accept_unconverged=True)
    assert [update.period for update in bank.backfill(manifest, accept_unconverged=True)] == ["Q2", "Q3"]
    equal_banks(bank, one_by_one)


def test_add_on_a_cluster_is_the_same_to_the_bit(tmp_path: Path, client: Any, one_by_one: Bank) -> None:
    files_of(tmp_path)
    bank = Bank.create(tmp_path / "bank", QUICK)
    bank.add(
        "Q1",
        tmp_path / "Q1.csv",
        tmp_path / "items.csv",
        accept_unconverged=True,
        cluster=client.cluster.scheduler_address,
    )
    mine, theirs = bank.calibration("Q1"), one_by_one.calibration("Q1")
    for name, group in mine.groups.items():
        np.testing.assert_array_equal(group.xi, theirs.groups[name].xi)


def test_a_cluster_has_no_other_calibrator_than_its_own(tmp_path: Path, client: Any, one_by_one: Bank) -> None:
    bank = Bank.create(tmp_path / "bank", QUICK)
    for shards in (1, 2):
        with pytest.raises(BankError, match="concal's own engine"):
            bank.add(
                "Q1", responses_table("Q1"), items_table(), calibrator=fake_calibrator, cluster=client, shards=shards
            )
    with pytest.raises(BankError, match="concal's own engine"):
        evaluate_bank(one_by_one, calibrator=fake_calibrator, cluster=client, keep=False)


def test_an_evaluation_on_a_cluster_is_the_same_to_the_bit(one_by_one: Bank, tmp_path: Path, client: Any) -> None:
    bank = Bank(copy_bank(Path(one_by_one.path), tmp_path / "bank"))
    here = evaluate_bank(bank, methods=("analytic",), keep=False)
    told: list[str] = []
    there = evaluate_bank(
        bank,
        methods=("analytic",),
        keep=False,
        cluster=client,
        progress=lambda stage, share, message: told.append(stage),
    )
    assert "pooled fit" in told
    for name, frame in here.frames().items():
        assert frame.equals(there.frames()[name]), name
    assert os.listdir(bank._store.work) == []


def test_shards_on_a_cluster_are_the_same_to_the_bit(tmp_path: Path, client: Any) -> None:
    responses, items = test_shards.tables(test_shards.simulated()[0])
    banks = [Bank.create(tmp_path / name, test_shards.SPEC) for name in ("here", "there")]
    for bank, cluster in zip(banks, (None, client), strict=True):
        bank.add("Q1", responses, items, shards=2, cluster=cluster)
        assert list(bank._store.work.iterdir()) == []
    equal_banks(*banks)


def test_manifests_that_cannot_be(tmp_path: Path) -> None:
    manifest = files_of(tmp_path)
    bank = Bank.create(tmp_path / "bank", QUICK)
    for text, what in (
        ("period,responses,items\nQ1,no.csv,items.csv\n", "1 file not found"),
        ("period,responses,items\nQ1,Q1.csv,items.csv\nQ1,Q2.csv,items.csv\n", "1 period named twice"),
        ("period,responses,items\n", "no line"),
        ("period,response\nQ1,x\n", "responses"),
    ):
        manifest.write_text(text)
        with pytest.raises(DataError, match=what):
            bank.backfill(manifest)
    assert bank.version == 0


def test_clusters_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1)
    bank = Bank.create(tmp_path / "bank", QUICK)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(BankError, match="no Dask scheduler answers"):
            bank.backfill(files_of(tmp_path / "files"), cluster=address)
    with monkeypatch.context() as patched:
        patched.setattr("concal.bank.update.add.check", never)
        with pytest.raises(BankError, match="no Dask scheduler answers"):
            bank.add("Q1", tmp_path / "files" / "Q1.csv", tmp_path / "files" / "items.csv", cluster="tcp://127.0.0.1:9")
    assert bank.version == 0
    assert os.listdir(bank._store.work) == []


def test_workers_with_another_version_or_without_the_storage_are_refused(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Bank.create(tmp_path / "bank", QUICK)
    clusters.check_workers(client, bank._store)

    def other(place: str, token: str) -> dict[str, Any]:
        return {"concal": "9.9", "engine": 1, "storage": ""}

    with monkeypatch.context() as patched:
        patched.setattr(clusters, "look_around", other)
        with pytest.raises(BankError, match=r"2 of 2 workers .*has concal 9\.9"):
            clusters.check_workers(client, bank._store)
    found = clusters.look_around(str(tmp_path / "elsewhere"), "x")
    assert found["concal"] == concal.__version__
    assert "cannot use" in found["storage"]


def test_prior_from_the_bank_cannot_be_side_by_side(tmp_path: Path) -> None:
    content = QUICK.model_dump()
    content["calibration"]["prior"] = "bank"
    bank = Bank.create(tmp_path / "bank", Spec.parse(content))
    with pytest.raises(BankError, match="side by side"):
        bank.backfill(files_of(tmp_path / "files"), cluster="tcp://127.0.0.1:9")


# processes of their own


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def both_sample(bank: Path | str) -> bool:
    """Whether workers are in the middle of both periods: not a lock, which whoever looks for finished tables takes."""
    return in_work(bank, "checkpoint.npz") == 2


def in_work(bank: Path | str, ending: str) -> int:
    """How many files of calibrations end so, where all machines see them."""
    try:
        files = Store.open(bank).objects.files("work")
    except FileNotFoundError:  # one vanished just now
        return -1
    return sum(f.name.startswith("work/calibration-") and f.name.endswith(ending) for f in files)


@contextmanager
def real_cluster(
    workers: int = 2, caches: Path | None = None
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]], subprocess.Popen[bytes]]]:
    """A scheduler and workers without nannies, each a process; checkpoints every .2 seconds.

    With `caches` the workers are as on machines of their own: each keeps what it fetched in another folder.
    """

    def save_often() -> None:  # on the workers; they cannot import this file, so it is sent whole
        import concal.calibration.sampler

        concal.calibration.sampler.CHECKPOINT_SECONDS = 0.2

    address = f"tcp://127.0.0.1:{free_port()}"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    script = [sys.executable, "-c", "from distributed.cli.dask_scheduler import main; main()"]
    scheduler = subprocess.Popen([*script, "--host", address, "--no-dashboard"], **quiet)
    script = [sys.executable, "-c", "from distributed.cli.dask_worker import main; main()"]
    started = [
        subprocess.Popen(
            [*script, address, "--nthreads", "1", "--no-nanny", "--no-dashboard"],
            env=os.environ if caches is None else {**os.environ, "CONCAL_CACHE": str(caches / f"worker{k}")},
            **quiet,
        )
        for k in range(workers)
    ]
    try:
        with distributed.Client(address, timeout=60) as made:
            made.wait_for_workers(workers, timeout=60)
            made.run(save_often)
        yield address, started, scheduler
    finally:
        for process in (*started, scheduler):
            process.kill()
            process.wait()


def long_run(sweeps: int) -> Spec:
    """Chains that go on until the limit, so that there is time to disturb them."""
    limits = {"chains": 2, "draws": 100, "max_sweeps": sweeps, "min_ess": 1e9}
    return Spec.parse({**QUICK.model_dump(), "calibration": limits})


LONG = long_run(1500)


def answered_files(folder: Path) -> Path:
    """A backlog of two periods whose examinees answer by ability: items keep their places, so the periods link."""
    manifest = files_of(folder, ("Q1", "Q2"))
    for seed, period in enumerate(("Q1", "Q2")):
        rng = np.random.default_rng(seed)
        table = responses_table(period, 2 * seed, persons=200)
        item, person = table["item_id"].to_list(), table["person_id"].rank("dense").to_numpy().astype(int) - 1
        easy = np.array([1.5 * np.sin(int(name[1:])) for name in item])
        pull = rng.normal(0, 1.2, 200)[person] + easy + rng.logistic(0, 1, len(item))
        essay = np.array([name.startswith("e") for name in item])
        score = np.where(essay, np.clip(np.floor(pull + 2), 0, 3), pull > 0)
        table.with_columns(pl.Series("score", score.astype(float))).write_csv(folder / f"{period}.csv")
    return manifest


def wait_for(happens: Callable[[], Any], seconds: float = 150.0) -> bool:
    """Whether something happens in time."""
    end = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("where", ["folder", "s3"])
def test_a_worker_killed_in_the_middle_is_replaced_with_the_same_bits(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = Place(tmp_path if where == "folder" else request.getfixturevalue("bucket")) / "bank"
    manifest = answered_files(tmp_path / "files")
    whole = Bank.create(tmp_path / "whole", LONG)
    whole.backfill(manifest, accept_unconverged=True)
    bank = Bank.create(place, LONG)
    with real_cluster(caches=tmp_path / "caches") as (address, workers, _):
        seen: list[int] = []

        def kill_one() -> None:
            if wait_for(lambda: both_sample(place)):
                workers[0].kill()
                seen.append(in_work(place, "done.json"))

        killer = threading.Thread(target=kill_one)
        killer.start()
        bank.backfill(manifest, cluster=address, accept_unconverged=True)
        killer.join()
    assert seen == [0], "both had begun, and neither was done"
    equal_banks(bank, whole)
    assert in_work(place, "") == 0


@pytest.mark.slow
def test_a_worker_that_cannot_write_the_storage_is_refused_before_anything_runs(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "bank", LONG)
    place = str(tmp_path / "bank")

    def hide() -> None:  # on the worker: a machine that has no such folder
        from concal.bank.store import folders

        def gone(self: Any, name: str) -> Path:
            raise FileNotFoundError(2, "No such file or directory", place)

        folders.FolderObjects._inside = gone  # type: ignore[method-assign]

    with real_cluster(1) as (address, _, _scheduler), distributed.Client(address) as client:
        client.run(hide)
        start = time.monotonic()
        with pytest.raises(BankError, match="1 of 1 workers cannot do this work"):
            bank.backfill(files_of(tmp_path / "files"), cluster=client)
        assert time.monotonic() - start < 30
    assert not [name for name in os.listdir(bank._store.work) if name.startswith("job-")]
    assert bank.version == 0


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_an_error_and_work_goes_on_later(tmp_path: Path) -> None:
    manifest = answered_files(tmp_path / "files")
    bank = Bank.create(tmp_path / "bank", LONG)
    with real_cluster() as (address, _, scheduler):
        killed: list[bool] = []

        def end() -> None:
            killed.append(wait_for(lambda: both_sample(tmp_path / "bank")))
            scheduler.kill()

        killer = threading.Thread(target=end)
        killer.start()
        with pytest.raises(BankError, match="the cluster was lost"):
            bank.backfill(manifest, cluster=address)
        killer.join()
    assert killed == [True], "in the middle"
    assert Bank(bank.path).version == 0
    assert bank.verify().ok
    with real_cluster() as (address, _, _scheduler):
        assert len(bank.backfill(manifest, cluster=address, accept_unconverged=True)) == 2


@pytest.mark.slow
def test_interrupting_calls_the_jobs_off(tmp_path: Path) -> None:
    manifest = answered_files(tmp_path / "files")
    spec = tmp_path / "endless.toml"
    long_run(10_000_000).write(spec)
    run = [sys.executable, "-m", "concal.cli"]
    subprocess.run([*run, "init", str(tmp_path / "bank"), "--spec", str(spec)], check=True, capture_output=True)
    with real_cluster() as (address, _, _scheduler):
        command = [*run, "backfill", str(tmp_path / "bank"), str(manifest), "--scheduler", address]
        child = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in background
        )
        assert wait_for(lambda: both_sample(tmp_path / "bank"))
        child.send_signal(signal.SIGINT)
        _, text = child.communicate(timeout=60)
        assert child.returncode == 130
        assert b"goes on where it stopped" in text
        with distributed.Client(address) as client:
            count = lambda dask_worker: dask_worker.state.executing_count  # noqa: E731
            assert wait_for(lambda: not any(client.run(count).values()), 60), "workers went on"
    assert both_sample(tmp_path / "bank"), "what was sampled is kept"
    assert Bank(tmp_path / "bank").version == 0
