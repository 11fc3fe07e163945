"""A calibration as a job: everything it needs in a folder, so that another process or machine can do it.

``work/job-<fingerprint>/`` has the checked data of a period, its spec and its seed. Whoever does the job calibrates on
the shelf of the same fingerprint (`concal.bank.store.shelf`), where a killed run left its checkpoint, and leaves the
finished tables there. In a bank that is a folder all of this lies in the bank; on object storage it travels
(`concal.bank.jobs.travel`).
"""

from __future__ import annotations

import shutil
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import concal
from concal.allocator import keeping_memory
from concal.bank.building.progress import Clock
from concal.bank.building.spec import changed
from concal.bank.jobs.calibrating import Task, calibrate_on_shelf
from concal.bank.jobs.job_data import read_data, write_data
from concal.bank.jobs.travel import TravellingCheckpoint, fetch_folder, send_folder
from concal.bank.store.files import disk_errors, sync_folder, write_durably
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.store.manifest import dump_files, load_files, parse_json, to_bytes
from concal.bank.store.shelf import Shelf
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_calibration
from concal.calibration.fingerprint import fingerprint
from concal.calibration.period import calibrate_period
from concal.calibration.sampler import Stopped
from concal.data.period import PeriodData
from concal.errors import BankError
from concal.spec import Spec

Tell = Callable[[float, str], None]
_LOOK_SECONDS = 2.0
"""Between two looks whether the job was called off."""
_WAIT_SECONDS = 120.0
"""For the shelf of a process that is thought to be dead and is still dying."""


class JobFolder:
    """A job's folder looks like a small store; see `concal.bank.store.folder.Places`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, folder: str, name: str) -> tuple[Path, str]:
        """Where to write a file, and its path in the folder."""
        path = self.folder / "data" / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path, f"data/{folder}/{name}"


def write_job(store: Store, data: PeriodData, spec: Spec, seed: int, *, resume: bool = True) -> str:
    """Leave a job in the bank's storage; returns its name. The same calibration has the same name."""
    identity = fingerprint(data, spec, seed)
    folder = store.work / f"job-{identity}"
    with disk_errors(f"writing a job for period {data.period!r}"):
        store.work.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        writer = FolderWriter(JobFolder(folder), "job")
        write_data(writer, data)
        content = {
            "identity": identity,
            "concal": concal.__version__,
            "period": data.period,
            "seed": seed,
            "resume": resume,
            "spec": spec.to_toml(),
            "files": dump_files(writer.files),
        }
        write_durably(folder / "job.json", to_bytes(content))
        sync_folder(folder)
    send_folder(store, folder)
    store.objects.delete([f"work/{folder.name}/stop"])
    return folder.name


def do_job(place: str | Path, name: str, tell: Tell, threads: int | None = None) -> str:
    """Calibrate, in any process, any number of times; returns the name of the shelf with the finished tables.

    Parameters
    ----------
    place
        The bank.
    name
        From `write_job`.
    tell
        Called with the share that is done and a message.
    threads
        Of the engine; the draws do not depend on it.
    """
    store = Store.open(place)
    store.work.mkdir(parents=True, exist_ok=True)
    folder, content = open_job(store, name, "job.json")
    data = read_data(FolderReader(Store.open(folder), load_files(content["files"])))
    spec = Spec.parse(tomllib.loads(content["spec"]))
    if fingerprint(data, spec, content["seed"]) != content["identity"]:
        raise BankError(f"{name} does not hold the data it was written with; run the command that wrote it again")
    used = spec if threads is None else changed(spec, "calibration", threads=threads)
    shelf = _take_shelf(store, data.period, content["identity"])
    try:
        if content["resume"]:
            fetch_folder(store, shelf.folder.name)  # of one who died when all was done
        with keeping_memory():
            _calibrate(name, Task(shelf, data, used, content["seed"]), content["resume"], tell)
        send_folder(store, shelf.folder, ("data/calibration", "done.json"))
    finally:
        shelf.release()
    return shelf.folder.name


def open_job(store: Store, name: str, file: str) -> tuple[Path, dict[str, Any]]:
    """A job's folder on this machine, and what its file says; refused where another version of concal wrote it."""
    folder = fetch_folder(store, name)
    content = parse_json((folder / file).read_bytes(), f"{name}/{file}")
    if content["concal"] != concal.__version__:
        raise BankError(f"the job was written by concal {content['concal']}, here is concal {concal.__version__}")
    return folder, content


def _calibrate(name: str, task: Task, resume: bool, tell: Tell) -> None:
    """Leave finished tables on the shelf; meanwhile the checkpoint is where others can go on from it."""
    shelf = task.shelf
    travelling = TravellingCheckpoint(shelf.store, shelf.folder)
    progress = _watched(shelf.store, name, tell, travelling)
    try:
        files = calibrate_on_shelf(task, calibrate_period, progress=progress, resume=resume)
    except Stopped:
        travelling.send(now=True)
        raise
    if read_calibration(shelf.reader(files), draws=False).convergence.converged:
        travelling.clear()
    else:
        travelling.send(now=True)


def stop_job(store: Store, name: str) -> None:
    """Ask whoever does a job to end; its checkpoint stays."""
    store.objects.put(f"work/{name}/stop", b"stop\n")


def _take_shelf(store: Store, period: str, identity: str) -> Shelf:
    """The job's shelf; a process that was killed may hold it a little longer."""
    start = time.monotonic()
    while True:
        try:
            return Shelf(store, period, identity)
        except BankError:
            if time.monotonic() - start > _WAIT_SECONDS:
                raise
            time.sleep(1.0)


def _watched(store: Store, name: str, tell: Tell, travelling: TravellingCheckpoint) -> Callable[[Any], None]:
    """Report progress, send the checkpoint when it is time, and end when the job was called off."""
    clock, looked = Clock(lambda stage, share, message: tell(share, message)), [time.monotonic()]

    def report(progress: Any) -> None:
        clock.sampling(name, progress)
        travelling.send()
        if time.monotonic() - looked[0] > _LOOK_SECONDS:
            looked[0] = time.monotonic()
            try:
                store.objects.read(f"work/{name}/stop")
            except FileNotFoundError:
                return
            raise Stopped(name)

    return report
