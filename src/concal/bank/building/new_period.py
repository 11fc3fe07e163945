"""A calibrated period on its way into the bank: what is stored with it, once and for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.allocator import give_back
from concal.bank.building.coding import used_coding
from concal.bank.building.spec import spec_bytes
from concal.bank.store.commit import now
from concal.bank.store.manifest import FileEntry
from concal.bank.store.shelf import Shelf
from concal.bank.tables.calibration import read_calibration, write_calibration
from concal.bank.tables.responses import write_responses
from concal.bank.tables.results import read_factors, write_factors
from concal.calibration.result import Calibration
from concal.calibration.verdict import good_items
from concal.consensus.factors.make import make_factors
from concal.consensus.factors.period import PeriodFactors
from concal.data.findings import Findings
from concal.data.items import read_items
from concal.data.period import PeriodData
from concal.data.read import Table
from concal.errors import DataError, SpecError, counted, first_few
from concal.names import check_safe_name
from concal.spec import CalibrationSpec, Spec

_UNREAD = (pl.Binary, pl.Object, pl.Null)


@dataclass(frozen=True)
class NewPeriod:
    """A calibration with its finished files.

    Attributes
    ----------
    calibration : Calibration
        Without the draws of its items, which are in the files.
    factors : PeriodFactors
    shelf : Shelf
        Where the files are until a commit adopts them.
    files : dict of key -> FileEntry
    spec : Spec
        The period's.
    """

    calibration: Calibration
    factors: PeriodFactors
    shelf: Shelf
    files: dict[str, FileEntry]
    spec: Spec

    @property
    def converged_items(self) -> npt.NDArray[np.bool_]:
        """Which items are within the R-hat target, in the order of the groups."""
        return _converged_items(self.calibration, self.spec)

    @property
    def name(self) -> str:
        """Of the period."""
        return self.calibration.period

    def _person_groups(self) -> str | None:
        """Groups of examinees, the one that sets the metric first."""
        abilities = self.calibration.abilities
        return ", ".join(abilities.populations) if abilities and len(abilities.populations) > 1 else None

    @property
    def info(self) -> dict[str, Any]:
        """What a table of periods shows."""
        calibration, convergence = self.calibration, self.calibration.convergence
        groups = calibration.groups.values()
        return {
            "n_items": sum(g.n_items for g in groups),
            "n_responses": int(sum(int(g.n_responses.sum()) for g in groups)),
            "n_persons": self.files["persons"].rows if "persons" in self.files else None,
            "person_groups": self._person_groups(),
            "n_draws": calibration.n_draws,
            "engine": calibration.engine,
            "seed": calibration.seed,
            "prior": "bank" if any(g.guide_mean is not None for g in groups) else "population",
            "converged": convergence.converged,
            "n_unconverged": int((~self.converged_items).sum()),
            "seconds": float(convergence.seconds) if np.isfinite(convergence.seconds) else None,
            "added": now(),
        }


def keep_calibration(shelf: Shelf, calibration: Calibration, spec: Spec) -> dict[str, FileEntry]:
    """Write a finished calibration and its factors, so that an interrupted update need not make them again."""
    check_calibration(calibration, spec)
    writer = shelf.start("calibration")
    write_calibration(writer, calibration)
    give_back()
    write_factors(writer, make_factors(calibration))
    shelf.finish(writer.files)
    return writer.files


def finished_tables(shelf: Shelf, options: CalibrationSpec) -> dict[str, FileEntry] | None:
    """The finished tables of an earlier run, unless these options let it go on: it missed its targets at lower limits.

    A period in shards goes on wherever one of its shards does, so its tables count only when it has converged.
    """
    files = shelf.finished()
    if files is None:
        return None
    reached = read_calibration(shelf.reader(files), draws=False).convergence
    too_long = options.max_minutes is not None and reached.seconds > 60.0 * options.max_minutes
    at_limit = options.shards == 1 and (reached.sweeps >= options.max_sweeps or too_long)
    return files if reached.converged or at_limit else None


def new_period(
    shelf: Shelf,
    calibrated: Mapping[str, FileEntry],
    spec: Spec,
    states: Mapping[str, Any],
    *,
    items: Table | None,
    persons: pl.Series | None,
    returning: pl.Series | None = None,
    data: PeriodData | None = None,
) -> NewPeriod:
    """A calibration from the shelf with everything else that is kept of its period.

    Parameters
    ----------
    calibrated
        What `keep_calibration` wrote.
    spec
        The period's.
    states
        How its features are coded, by group.
    items
        The item table it came with, answered items and others.
    persons
        Who took part.
    returning
        Who took part too, but was in another period already and counts there.
    data
        Its responses; None: not kept.
    """
    reader = shelf.reader(calibrated)
    calibration = read_calibration(reader, draws=False)
    writer = shelf.start("period")
    writer.frame("answered", _answered_items(calibration, spec))
    writer.frame("items", _listed_items(calibration, spec, items))
    writer.json("coding", used_coding(states, {name: g.features for name, g in calibration.groups.items()}))
    writer.text("spec", "spec.toml", spec_bytes(spec))
    if persons is not None:
        writer.frame("persons", pl.DataFrame({"person_id": persons.cast(pl.String)}))
    if returning is not None and returning.len():
        writer.frame("returning", pl.DataFrame({"person_id": returning.cast(pl.String)}))
    if data is not None:
        write_responses(writer, data)
    return NewPeriod(calibration, read_factors(reader), shelf, {**calibrated, **writer.files}, spec)


def check_calibration(calibration: Calibration, spec: Spec) -> None:
    """Refuse draws that do not fit the programme, naming what and where."""
    check_safe_name(calibration.period)
    if calibration.dimensions != spec.bank.dimensions:
        raise DataError(
            f"period {calibration.period!r} has the dimensions {list(calibration.dimensions)}, the bank "
            f"{list(spec.bank.dimensions)}; every period of a bank must measure all of its dimensions: add the missing "
            "items, or keep a bank per dimension"
        )
    for name, group in calibration.groups.items():
        where = f"period {calibration.period!r}, group {name!r}"
        wanted = spec.group(name)
        if wanted is None:
            raise SpecError(f"{where}: not in the spec, which has {first_few(list(spec.groups))}")
        if wanted.response_model != group.model or wanted.dimension != group.dimension:
            raise SpecError(
                f"{where}: model {group.model} on {group.dimension!r}, but the spec says {wanted.response_model} on "
                f"{wanted.dimension!r}"
            )
        check_item_draws(where, group.item_ids, group.xi)
        if not (np.isfinite(group.beta).all() and np.isfinite(group.sigma).all()):
            raise DataError(f"{where}: draws of beta or Sigma are not finite")
        spreads = np.sqrt(np.abs(np.diagonal(group.sigma, axis1=-2, axis2=-1)))
        widest = np.median(spreads, axis=(0, 1)).max()  # tails of a spread that nobody knows go far
        if widest > WIDEST:
            raise DataError(
                f"{where}: the items' spread is {widest:,.0f} in half of the draws of Sigma, above {WIDEST:,.0f}; "
                "items do not differ by that much. Give Sigma as the covariance of d and log a; for a vague prior, SDs "
                "of 10"
            )


FARTHEST_D, FARTHEST_LOG_A = 1e4, 20.0
"""Beyond any item: slopes of e^20 and 1/e^20, difficulties of ten thousand SDs. Sums of squares stay numbers within."""
WIDEST = 200.0  # SD of items in a period; a fixed vague prior has 10 or 100, and beyond nothing could be summed up
LEAST_SD, LEAST_SHARE = 1e-5, 1e-9
"""Spread of draws below which their single precision shows (steps of 1e-7 at 1), and least eigenvalue of their
correlations, below which one parameter follows from the others. A million responses leave SDs of .003."""
_AT_ONCE = 512  # items whose draws are in float64 at the same time


def check_item_draws(where: str, ids: tuple[str, ...], xi: npt.NDArray[np.float32]) -> None:
    """Refuse draws (chain, draw, item, parameter) that are no posterior of an item, naming the items.

    They are finite, vary, lie where items are, and have a covariance that can be inverted.
    """
    low, high = xi.min(axis=(0, 1)), xi.max(axis=(0, 1))
    extreme = np.maximum(np.abs(low), np.abs(high))[:, :2] > (FARTHEST_D, FARTHEST_LOG_A)
    for bad, what in (
        (~(np.isfinite(low) & np.isfinite(high)), "are not finite: {}"),
        (low == high, "do not vary: {}; give draws, not points"),
        (
            extreme,
            f"have |d| above {FARTHEST_D:,.0f} or |log a| above {FARTHEST_LOG_A:.0f}: {{}}; no item is there. Look "
            "whether parameters were mixed up (log a, not a) or the sampler ran away, or leave these items out",
        ),
    ):
        _refuse(where, ids, bad.any(axis=1), what)
    _refuse(
        where,
        ids,
        _without_covariance(xi),
        "hardly vary or vary in fewer directions than they have parameters, so they have no usable covariance: {}; "
        "give draws of a sampler that moves, from several chains, or leave these items out",
    )


def _refuse(where: str, ids: tuple[str, ...], bad: npt.NDArray[np.bool_], what: str) -> None:
    if found := [ids[j] for j in np.flatnonzero(bad)]:
        raise DataError(f"{where}: draws of {counted(len(found), 'item')} {what.format(first_few(found))}")


def _without_covariance(xi: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Items whose draws have no covariance that can be inverted; too few draws for one are another error."""
    n, p = xi.shape[2:]
    flat, bad = xi.reshape(-1, n, p), np.zeros(n, dtype=bool)
    for start in range(0, n if len(flat) > p + 2 else 0, _AT_ONCE):
        block = slice(start, start + _AT_ONCE)
        z = flat[:, block].astype(np.float64)
        z -= z.mean(axis=0)
        sd = z.std(axis=0)
        z /= np.maximum(sd, LEAST_SD)
        z = z.transpose(1, 2, 0)
        correlations = z @ z.transpose(0, 2, 1) / len(flat)
        bad[block] = (sd < LEAST_SD).any(axis=1) | (np.linalg.eigvalsh(correlations)[:, 0] < LEAST_SHARE)
    return bad


def _answered_items(calibration: Calibration, spec: Spec) -> pl.DataFrame:
    """Items of the calibration with their number of responses, and whether their chains agree."""
    schema = {"item_id": pl.String, "group": pl.String, "dimension": pl.String, "n_responses": pl.Int64}
    rows = [
        (item, name, group.dimension, int(n))
        for name, group in calibration.groups.items()
        for item, n in zip(group.item_ids, group.n_responses, strict=True)
    ]
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.with_columns(pl.Series("converged", _converged_items(calibration, spec)))


def _converged_items(calibration: Calibration, spec: Spec) -> npt.NDArray[np.bool_]:
    return np.concatenate([good_items(group, spec.calibration) for group in calibration.groups.values()])


def _listed_items(calibration: Calibration, spec: Spec, items: Table | None) -> pl.DataFrame:
    """The item table, whole: which of its columns a formula reads may change when the period is long in the bank.

    Left out are columns that no formula can read (lists, bytes, nothing but empty cells). Without a table, the
    calibrated items.
    """
    if items is None:
        return _answered_items(calibration, spec).select("item_id", "group")
    found = Findings("items")
    table = read_items(items, spec, found)
    found.stop_if_bad()
    table = table.select(name for name, kind in table.schema.items() if not kind.is_nested() and kind not in _UNREAD)
    wide = pl.col([name for name, kind in table.schema.items() if kind.is_integer() and str(kind).endswith("128")])
    table = table.with_columns(
        pl.col(pl.Categorical, pl.Enum).cast(pl.String), wide.cast(pl.Float64)
    )  # no file has them
    return table.select("item_id", "group", pl.exclude("item_id", "group"))
