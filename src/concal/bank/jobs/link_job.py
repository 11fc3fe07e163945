"""Linking of a period as a job: periods that share enough items with the reference are linked side by side.

``work/link-<key>/link.json`` says which two calibrations, and where they are: in a version of the bank, or finished on
a shelf that waits to be committed. Whoever does the job leaves the link beside it. A link that would need other periods
than the reference is not made here, because it depends on what is in the bank when its turn comes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import concal
from concal.bank.acts import Acts
from concal.bank.building.link_periods import Made, direct_key, is_direct
from concal.bank.building.periods import Periods
from concal.bank.building.stored_period import stored_source
from concal.bank.jobs.job import JobFolder, Tell, open_job
from concal.bank.jobs.travel import fetch_folder, send_folder
from concal.bank.store.files import disk_errors, write_durably
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.store.manifest import FileEntry, PeriodEntry, Snapshot, dump_files, load_files, parse_json, to_bytes
from concal.bank.store.shelf import finished_on
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_calibration
from concal.bank.tables.results import read_link, write_link
from concal.errors import BankError, LinkError
from concal.linking.anchors import Source
from concal.linking.period import link_sources
from concal.spec import LinkingSpec, Spec

LINK = "link-"


def write_links(
    store: Store, head: Snapshot, spec: Spec, shelves: Mapping[str, str], reference: str | None
) -> dict[str, str]:
    """Leave a job for every period on a shelf that may be linked to the reference as it is; names by period.

    Parameters
    ----------
    store, head, spec
        The bank's.
    shelves
        Folder of the shelf by period, in the order they are to be added.
    reference
        Of the version they will be in; None where there is none yet.
    """
    if reference is None:
        return {}
    periods, jobs = _with_shelves(store, head, shelves), {}
    for period in shelves:
        if period != reference and not periods.acts.with_period(period).concern(period):
            jobs[period] = _write(store, head, spec, periods, shelves, period, reference)
    return jobs


def _write(
    store: Store,
    head: Snapshot,
    spec: Spec,
    periods: Periods,
    shelves: Mapping[str, str],
    period: str,
    reference: str,
) -> str:
    key = direct_key(periods, period, reference, spec)
    folder = store.work / f"{LINK}{key}"
    needed = [shelves[name] for name in (period, reference) if name in shelves]
    content = {
        "concal": concal.__version__,
        "period": period,
        "reference": reference,
        "version": head.number,
        "shelves": {name: shelves[name] for name in (period, reference) if name in shelves},
        "linking": spec.linking_in_force.model_dump(mode="json"),
    }
    with disk_errors(f"writing a job to link period {period!r}"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_durably(folder / "link.json", to_bytes(content))
    send_folder(store, folder)
    for shelf in needed:
        _show(store, shelf)
    return folder.name


def _show(store: Store, shelf: str) -> None:
    """See to it that workers can read a shelf: one that an earlier run filled is on this machine alone."""
    if not store.objects.has_lock and not any(
        f.name.endswith("/done.json") for f in store.objects.files(f"work/{shelf}")
    ):
        send_folder(store, store.work / shelf, ("data/calibration", "done.json"))


def do_link(place: str | Path, name: str, tell: Tell, threads: int | None = None) -> str:
    """Link a period, in any process, any number of times; returns the name of the folder with the link."""
    store = Store.open(place)
    folder, content = open_job(store, name, "link.json")
    tell(0.1, "reading draws")
    focal, reference = (_source(store, content, content[role]) for role in ("period", "reference"))
    tell(0.3, "linking")
    spec, files = LinkingSpec.model_validate(content["linking"]), {}
    try:
        link = link_sources(focal, reference, spec=spec, threads=threads)
        if is_direct(link, spec.min_anchors):
            shutil.rmtree(folder / "data", ignore_errors=True)
            writer = FolderWriter(JobFolder(folder), "link")
            write_link(writer, link)
            files = writer.files
    except LinkError:
        pass  # the reference alone does not do; whoever adds the period tries other ways and says what is wrong
    (folder / "done.json").unlink(missing_ok=True)
    write_durably(folder / "done.json", to_bytes({"files": dump_files(files)}))
    send_folder(store, folder, ("data/link", "done.json"))
    return name


def read_links(store: Store, jobs: Mapping[str, str]) -> Made:
    """The links that jobs left, by the key they are kept under."""
    made: Made = {}
    for name in jobs.values():
        folder = fetch_folder(store, name)
        content = parse_json((folder / "done.json").read_bytes(), f"{name}/done.json")
        if files := load_files(content["files"]):
            made[name.removeprefix(LINK)] = read_link(FolderReader(Store.open(folder), files))
    return made


def _source(store: Store, content: Mapping[str, Any], period: str) -> Source:
    """A period, from its shelf or from the bank."""
    if period not in content["shelves"]:
        return Periods.of(store, store.snapshot(content["version"]))[period].source()
    folder = fetch_folder(store, content["shelves"][period])
    reader = FolderReader(Store.open(folder), _tables(folder))
    return stored_source(reader, read_calibration(reader, draws=False))


def _with_shelves(store: Store, head: Snapshot, shelves: Mapping[str, str]) -> Periods:
    """The bank's periods and those on shelves, as far as keys of links depend on them."""
    there = Periods.of(store, head)
    new = {
        period: PeriodEntry(position=len(there.entries) + k, files=_tables(store.work / shelf))
        for k, (period, shelf) in enumerate(shelves.items())
    }
    return Periods(store, {**there.entries, **new}, acts=reduce(Acts.with_period, new, there.acts))


def _tables(folder: Path) -> dict[str, FileEntry]:
    files = finished_on(folder)
    if files is None:
        raise BankError(f"{folder.name}: what was calibrated is damaged; run the same command again")
    return files
