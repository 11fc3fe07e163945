"""Jobs on a Dask cluster: workers read data from the bank's storage, leave their results there and return names.

The cluster is asked before anything runs: every worker must have this version of concal and must be able to read and
write the bank's storage. A worker that is killed is replaced by Dask; the job goes on from its checkpoint. Ctrl-C calls
the jobs off.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import concal
from concal.bank.building.link_periods import Made
from concal.bank.building.new_period import finished_tables
from concal.bank.building.progress import Clock
from concal.bank.jobs.calibrating import Calibrator, Task, calibrate_on_shelf
from concal.bank.jobs.job import do_job, stop_job, write_job
from concal.bank.jobs.link_job import LINK, do_link, read_links, write_links
from concal.bank.jobs.travel import clear_folders, drop_tables, fetch_folder
from concal.bank.store.manifest import FileEntry, Snapshot
from concal.bank.store.store import Store
from concal.calibration.fingerprint import ENGINE
from concal.errors import BankError, first_few
from concal.spec import Spec

CONNECT_SECONDS = 10
"""For the scheduler to answer, and for the first worker to appear."""
TELL_SECONDS = 0.5
"""Between two reports of a job: one for every sweep cost 3 of the 40 CPU seconds of two short calibrations."""
_ONE_AT_A_TIME = threading.Lock()

Cluster = Any
"""Address of a Dask scheduler, or a `distributed.Client`."""


@contextmanager
def connected(cluster: Cluster, store: Store) -> Iterator[Any]:
    """A client of a cluster whose workers can do the bank's work; one that was given stays open."""
    try:
        import distributed
    except ModuleNotFoundError:
        raise BankError("work on a cluster needs more packages: pip install 'concal[dask]'") from None
    Client: Any = distributed.Client
    if isinstance(cluster, Client):
        check_workers(cluster, store)
        yield cluster
        return
    try:
        client = Client(str(cluster), timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise BankError(
            f"no Dask scheduler answers at {cluster} ({type(error).__name__}); start one with `dask scheduler` and "
            "give its address, e.g. tcp://10.0.0.1:8786"
        ) from None
    try:
        check_workers(client, store)
        yield client
    finally:
        with suppress(Exception):  # a scheduler that is gone cannot be said goodbye to
            client.close(timeout=2)


@contextmanager
def reached(cluster: Cluster | None, store: Store) -> Iterator[Any]:
    """As `connected` where there is a cluster: asked first, because checking a period's data may take minutes."""
    if cluster is None:
        yield None
    else:
        with connected(cluster, store) as client:
            yield client


def check_workers(client: Any, store: Store) -> None:
    """Refuse a cluster that has no workers, or workers with another concal or without the bank's storage."""
    import distributed

    if not client.scheduler_info(n_workers=-1)["workers"]:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (TimeoutError, distributed.TimeoutError):
            raise BankError("the cluster has no workers; start some with `dask worker ADDRESS --nthreads N`") from None
    token = secrets.token_hex(8)
    store.objects.put(f"work/probe-{token}", token.encode())
    try:
        answers = client.run(look_around, _text(store.place), token, on_error="return")
    finally:
        store.objects.delete([f"work/probe-{token}"])
    bad = [f"{worker}: {why}" for worker, answer in answers.items() if (why := _reason(answer))]
    if bad:
        raise BankError(
            f"{len(bad)} of {len(answers)} workers cannot do this work: {first_few(bad)}; nothing was started. Workers "
            "need this version of concal, and the bank's folder under the same path or the credentials of its storage"
        )


def look_around(place: str, token: str) -> dict[str, Any]:
    """What a worker has: run there before any job."""
    found: dict[str, Any] = {"concal": concal.__version__, "engine": ENGINE}
    try:
        store = Store.open(place)
        seen = store.objects.read(f"work/probe-{token}").decode() == token
        store.objects.put(f"work/probe-{token}", token.encode())
        found["storage"] = "" if seen else f"sees another bank at {place}"
    except (OSError, BankError) as error:
        found["storage"] = f"cannot use {place} ({error})"
    return found


def _reason(answer: Any) -> str:
    """Why a worker cannot be used, or nothing."""
    if not isinstance(answer, dict):
        return f"does not know this concal ({type(answer).__name__}: {str(answer)[:100]})"
    if answer["concal"] != concal.__version__ or answer["engine"] != ENGINE:
        return f"has concal {answer['concal']} (engine {answer['engine']}), here is {concal.__version__} ({ENGINE})"
    return str(answer["storage"])


def calibrate(
    store: Store,
    tasks: Mapping[str, Task],
    run: Calibrator,
    clock: Clock,
    cluster: Cluster | None,
    *,
    resume: bool = True,
) -> dict[str, dict[str, FileEntry]]:
    """Calibrate one after the other here, or side by side on a cluster; the finished tables, on their shelves here.

    Parameters
    ----------
    store
        The bank's.
    tasks
        By what is shown of them.
    run
        What calibrates; on a cluster concal's own engine does.
    clock
        Told of each.
    cluster
        None: here.
    resume
        False: from the start, whatever is on the shelves.
    """
    if cluster is None:
        return {
            label: calibrate_on_shelf(task, run, progress=partial(clock.sampling, label), resume=resume)
            for label, task in tasks.items()
        }
    found = {label: finished_tables(task.shelf, task.spec.calibration) for label, task in tasks.items() if resume}
    done = {label: files for label, files in found.items() if files is not None}
    left = {label: task for label, task in tasks.items() if label not in done}
    if left:
        with connected(cluster, store) as client:
            done |= calibrate_there(client, store, left, clock, resume=resume)
    return done


def calibrate_there(
    client: Any, store: Store, tasks: Mapping[str, Task], clock: Clock, *, resume: bool = True
) -> dict[str, dict[str, FileEntry]]:
    """The same on a cluster alone, whatever is finished; `client` is from `connected`."""
    jobs = {label: write_job(store, t.data, t.spec, t.seed, resume=resume) for label, t in tasks.items()}
    with ExitStack() as lent:
        for task in tasks.values():
            lent.enter_context(task.shelf.lent())
        for shelf in run_jobs(client, store, jobs, clock).values():
            fetch_folder(store, shelf)
    clear_folders(store, list(jobs.values()))
    files = {}
    for label, task in tasks.items():
        found = task.shelf.finished()
        if found is None:
            raise BankError(f"{label}: what the cluster calibrated is damaged; run the same command again")
        files[label] = found
    return files


def link_there(client: Any, store: Store, head: Snapshot, spec: Spec, shelves: Mapping[str, str], clock: Clock) -> Made:
    """Link periods on shelves side by side, as far as the reference alone does; the links by their keys.

    Afterwards the shelves are on this machine alone.
    """
    names = [*head.ordered_periods(), *(period for period in shelves if period not in head.periods)]
    reference = spec.bank.reference if spec.bank.reference in names else next(iter(names), None)
    jobs = write_links(store, head, spec, shelves, reference)
    run_jobs(client, store, {f"link {period}": name for period, name in jobs.items()}, clock)
    made = read_links(store, jobs)
    drop_tables(store, *shelves.values())
    clear_folders(store, list(jobs.values()))
    return made


def run_jobs(client: Any, store: Store, jobs: Mapping[str, str], clock: Clock) -> dict[str, str]:
    """Do jobs side by side, all of them, or an error when one fails for good; what each returned.

    Parameters
    ----------
    client
        Of a cluster that `check_workers` let pass.
    store
        The bank's.
    jobs
        Name of a job (of `concal.bank.jobs.job` or `concal.bank.jobs.link_job`) by what is shown of it.
    clock
        Told of each.
    """
    import distributed
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    as_completed: Any = distributed.as_completed

    for label in jobs:
        clock.tell(label, 0.0, "waits for a worker")
    topic = f"concal-{secrets.token_hex(8)}"
    client.subscribe_topic(topic, lambda event: _show(event, clock))
    place = _text(store.place)
    futures = {
        client.submit(_on_worker, place, name, label, topic, key=f"{name}-{secrets.token_hex(4)}", retries=0): label
        for label, name in jobs.items()
    }
    done: dict[str, str] = {}
    try:
        for future in as_completed(futures, loop=client.loop):
            label = futures[future]
            try:
                done[label] = future.result()
            except KilledWorker as error:
                raise BankError(
                    f"{label}: several workers died while they did this job ({error}); it may need more memory than "
                    "they have. Its checkpoint stays: run the same command again on larger workers, or with --shards"
                ) from None
            except (distributed.CancelledError, FutureCancelledError, CommClosedError, OSError) as error:
                raise BankError(
                    f"{label}: the cluster was lost ({type(error).__name__}); what is finished is kept, run the same "
                    "command again"
                ) from None
            clock.tell(label, 1.0, "done")
    except BaseException:
        with suppress(Exception):
            for name in jobs.values():
                stop_job(store, name)
            client.cancel(list(futures), force=True)
        raise
    finally:
        with suppress(Exception):
            client.unsubscribe_topic(topic)
    return done


def _show(event: Any, clock: Clock) -> None:
    content = event[1] if isinstance(event, tuple) else event
    clock.tell(str(content["label"]), float(content["share"]), str(content["message"]))


def _on_worker(place: str, name: str, label: str, topic: str) -> str:
    """A job on a worker: one at a time per process, with as many threads as the worker was given."""
    from distributed import get_worker

    worker = get_worker()
    told = [0.0]

    def tell(share: float, message: str) -> None:
        if time.monotonic() - told[0] > TELL_SECONDS:
            told[0] = time.monotonic()
            worker.log_event(topic, {"label": label, "share": share, "message": f"{worker.name}: {message}"})

    with _ONE_AT_A_TIME:
        do = do_link if name.startswith(LINK) else do_job
        return do(place, name, tell, threads=max(1, worker.state.nthreads))


def _text(place: Path | str) -> str:
    """A place that means the same in another process."""
    return place if isinstance(place, str) else str(place.absolute())
