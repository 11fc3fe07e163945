"""A calibration as a job: everything it needs in a folder, so that another process or machine can do it.

``work/job-<fingerprint>/`` has the checked data of a period, its spec and its seed. Whoever does the job calibrates on
the shelf of the same fingerprint (`concal.bank.update.shelf`), where a killed run left its checkpoint, and leaves the
finished tables there. In a bank that is a folder all of this lies in the bank. On object storage jobs and finished
tables go through the storage; checkpoints stay on the machine that samples.
"""

from __future__ import annotations

import shutil
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import concal
from concal.bank.store.codec import decode_model, encode_model
from concal.bank.store.files import disk_errors, sync_folder, write_durably
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.store.manifest import FileEntry, parse_json, to_bytes
from concal.bank.store.store import Store
from concal.bank.tables.responses import write_responses
from concal.bank.update.new_period import converged_tables, keep_calibration
from concal.bank.update.progress import Clock
from concal.bank.update.shelf import Shelf, shelf_name
from concal.calibrate.fingerprint import fingerprint
from concal.calibrate.period import calibrate_period
from concal.calibrate.sampler import Stopped
from concal.data.period import GroupData, Guide, PeriodData
from concal.errors import BankError
from concal.spec import Spec

Tell = Callable[[float, str], None]
_LOOK_SECONDS = 2.0
"""Between two looks whether the job was called off."""
_WAIT_SECONDS = 120.0
"""For the shelf of a process that is thought to be dead and is still dying."""


class _JobFolder:
    """A job's folder looks like a small store; see `concal.bank.store.folder.Places`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, folder: str, name: str) -> tuple[Path, str]:
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
        writer = FolderWriter(_JobFolder(folder), "job")
        _write_data(writer, data)
        content = {
            "identity": identity,
            "concal": concal.__version__,
            "period": data.period,
            "seed": seed,
            "resume": resume,
            "spec": spec.to_toml(),
            "files": {key: entry.model_dump(mode="json") for key, entry in writer.files.items()},
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
    folder = fetch_folder(store, name)
    content = parse_json((folder / "job.json").read_bytes(), f"{name}/job.json")
    if content["concal"] != concal.__version__:
        raise BankError(f"the job was written by concal {content['concal']}, here is concal {concal.__version__}")
    files = {key: FileEntry.model_validate(entry) for key, entry in content["files"].items()}
    data = _read_data(FolderReader(Store.open(folder), files))
    spec = Spec.parse(tomllib.loads(content["spec"]))
    if fingerprint(data, spec, content["seed"]) != content["identity"]:
        raise BankError(f"{name} does not hold the data it was written with; run the command that wrote it again")
    used = spec if threads is None else _with_threads(spec, threads)
    shelf = _take_shelf(store, data.period, content["identity"])
    try:
        if not (content["resume"] and converged_tables(shelf)):
            calibration = calibrate_period(
                data,
                used,
                period=data.period,
                seed=content["seed"],
                checkpoint=shelf.checkpoint,
                progress=_watched(store, name, tell),
                resume=content["resume"],
            )
            keep_calibration(shelf, calibration, spec)
        send_folder(store, shelf.folder, ("data/calibration", "done.json"))
    finally:
        shelf.release()
    return shelf.folder.name


def stop_job(store: Store, name: str) -> None:
    """Ask whoever does a job to end; its checkpoint stays."""
    store.objects.put(f"work/{name}/stop", b"stop\n")


def clear_job(store: Store, name: str) -> None:
    """The job is done and its result is here."""
    shelf = name.removeprefix("job-")
    names = [f.name for f in store.objects.files("work")] if not store.objects.has_lock else []
    store.objects.delete([n for n in names if n.startswith(f"work/{name}/") or n.split("/")[1].endswith(f"-{shelf}")])
    shutil.rmtree(store.work / name, ignore_errors=True)


def fetch_shelf(store: Store, period: str, identity: str) -> None:
    """Bring the finished tables of a job to this machine."""
    fetch_folder(store, shelf_name(period, identity))


def send_folder(store: Store, folder: Path, only: tuple[str, ...] = ("",)) -> None:
    """Put a folder of the work folder where every machine finds it; the file that says all is there comes last."""
    if store.objects.has_lock:
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = sorted((str(path.relative_to(folder)) for path in files), key=lambda n: (n.endswith(".json"), n))
    for name in names:
        if name != "lock" and name.startswith(only):
            store.objects.put(f"work/{folder.name}/{name}", folder / name)


def fetch_folder(store: Store, name: str) -> Path:
    """A folder that `send_folder` put, on this machine."""
    folder = store.work / name
    if store.objects.has_lock:
        return folder
    for file in store.objects.files(f"work/{name}"):
        path = folder / file.name.removeprefix(f"work/{name}/")
        kept = path.suffix == ".parquet" and path.exists() and path.stat().st_size == file.bytes
        if path.name == "stop" or kept:
            continue  # hashes are compared when it is used
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f"{path.suffix}.new{time.monotonic_ns()}")
        new.write_bytes(store.objects.read(file.name, 0, file.bytes))
        new.replace(path)
    return folder


def _with_threads(spec: Spec, threads: int) -> Spec:
    return spec.model_copy(update={"calibration": spec.calibration.model_copy(update={"threads": threads})})


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


def _watched(store: Store, name: str, tell: Tell) -> Callable[[Any], None]:
    """Report progress, and end when the job was called off."""
    clock, looked = Clock(lambda stage, share, message: tell(share, message)), [time.monotonic()]

    def report(progress: Any) -> None:
        clock.engine(progress)
        if time.monotonic() - looked[0] > _LOOK_SECONDS:
            looked[0] = time.monotonic()
            try:
                store.objects.read(f"work/{name}/stop")
            except FileNotFoundError:
                return
            raise Stopped(name)

    return report


def _write_data(writer: FolderWriter, data: PeriodData) -> None:
    write_responses(writer, data)
    writer.frame("persons", pl.DataFrame({"person_id": data.person_ids, "population": data.population}))
    plain: dict[str, Any] = {}
    for k, (name, g) in enumerate(data.groups.items()):
        arrays = {"X": g.X} if g.guide is None else {"X": g.X, "mean": g.guide.mean, "covariance": g.guide.covariance}
        columns = {key: pl.Series(key, value.reshape(len(g.item_ids), -1).tolist()) for key, value in arrays.items()}
        writer.frame(f"items_{k}", pl.DataFrame({"item_id": list(g.item_ids), **columns}))
        plain[name] = {
            "dimension": g.dimension,
            "model": encode_model(g.model),
            "features": list(g.features),
            "coding": g.coding,
        }
    writer.json(
        "data",
        {
            "period": data.period,
            "dimensions": list(data.dimensions),
            "populations": list(data.populations),
            "warnings": list(data.warnings),
            "groups": plain,
            "order": list(data.groups),
        },
    )


def _read_data(reader: FolderReader) -> PeriodData:
    content, rows, persons = reader.json("data"), reader.frame("responses"), reader.frame("persons")
    groups = {}
    for k, name in enumerate(content["order"]):
        plain, items = content["groups"][name], reader.frame(f"items_{k}")
        answers = rows.filter(pl.col("group") == name)
        model, n = decode_model(plain["model"]), items.height
        arrays = {
            key: np.array(items[key].to_list(), dtype=np.float64).reshape(n, -1)
            for key in items.columns
            if key != "item_id"
        }
        p = len(model.parameters)
        guide = Guide(arrays["mean"], arrays["covariance"].reshape(n, p, p)) if "mean" in arrays else None
        groups[name] = GroupData(
            name=name,
            dimension=plain["dimension"],
            model=model,
            item_ids=tuple(items["item_id"].to_list()),
            features=tuple(plain["features"]),
            X=arrays["X"].reshape(n, len(plain["features"])),
            person=answers["person"].to_numpy(),
            item=answers["item"].to_numpy(),
            score=answers["score"].to_numpy(),
            coding=plain["coding"],
            guide=guide,
        )
    data = PeriodData(
        period=content["period"],
        dimensions=tuple(content["dimensions"]),
        person_ids=persons["person_id"],
        groups=groups,
        populations=tuple(content["populations"]),
        population=persons["population"].to_numpy().astype(np.int32),
    )
    return replace(data, warnings=tuple(content["warnings"]))
