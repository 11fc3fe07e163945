"""Calibrations as Parquet files; reading gives back what was written, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from concal.bank.store.codec import ROW_GROUP, Layout, read_layout, read_result, write_result
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.tables.fit import read_fit, write_fit
from concal.calibration.result import Abilities, Calibration, Convergence, GroupDraws

_BY_POPULATION = ("population_mean", "population_sd")
Float32 = npt.NDArray[np.float32]


def write_calibration(writer: FolderWriter, calibration: Calibration) -> None:
    """All of a calibration: draws, population, abilities, diagnostics."""
    shape = next(iter(calibration.groups.values())).xi.shape[:2]
    write_draws(writer, "draws", {n: g.xi for n, g in calibration.groups.items()}, calibration.groups)
    writer.tables(
        "population",
        [_population_table(g) for g in calibration.groups.values()],
        split=("beta", "sigma", "beta_mean"),
    )
    if calibration.abilities is not None:
        _write_abilities(writer, calibration.abilities, calibration.dimensions)
    write_result(
        writer,
        "calibration",
        calibration,
        skip=("xi", "beta", "sigma", "beta_mean", "abilities", "convergence", "beta_prior_precision", "fit"),
    )
    if calibration.fit is not None:
        write_fit(writer, calibration.fit)
    writer.json("convergence", {**asdict(calibration.convergence), "draws_shape": list(shape)})
    names = list(calibration.beta_prior_precision)
    writer.frame(
        "hyperprior",
        pl.DataFrame(
            {"group": names, "values": [np.ravel(calibration.beta_prior_precision[n]).tolist() for n in names]},
            schema={"group": pl.String, "values": pl.List(pl.Float64)},
        ),
    )


def write_draws(writer: FolderWriter, key: str, xi: Mapping[str, Float32], groups: Mapping[str, Any]) -> None:
    """A row per item, a fixed-size list per parameter, one item group after the other."""
    parameters = list(dict.fromkeys(p for g in groups.values() for p in g.model.parameters))
    sizes: list[tuple[str, int, int]] = [
        (name, start, min(start + ROW_GROUP, len(g.item_ids)))
        for name, g in groups.items()
        for start in range(0, max(1, len(g.item_ids)), ROW_GROUP)
    ]
    shape = [int(n) for n in next(iter(xi.values())).shape[:2]]
    tables = (_draw_table(groups[name], xi[name], parameters, start, end) for name, start, end in sizes)
    writer.tables(key, tables, split=parameters, meta={"row_groups": sizes, "chains": shape[0], "draws": shape[1]})


def _draw_table(group: Any, xi: Float32, parameters: Sequence[str], start: int, end: int) -> pa.Table:
    n_draws, n = int(xi.shape[0] * xi.shape[1]), end - start
    flat = xi[:, :, start:end].reshape(n_draws, n, xi.shape[-1])
    kind = pa.list_(pa.float32(), n_draws)
    columns: dict[str, pa.Array] = {
        "item_id": pa.array(group.item_ids[start:end], pa.string()),
        "group": pa.array([group.name] * n, pa.string()),
    }
    for name in parameters:
        if name in group.model.parameters:
            values = np.ascontiguousarray(flat[:, :, group.model.parameters.index(name)].T, dtype=np.float32)
            columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), n_draws)
        else:
            columns[name] = pa.nulls(n, kind)
    return pa.table(columns)


def _population_table(group: GroupDraws) -> pa.Table:
    """A row per draw: beta feature by feature, Sigma row by row."""
    chains, draws = group.beta.shape[:2]
    n = chains * draws

    def lists(values: npt.NDArray[np.float64] | None) -> pa.Array:
        kind = pa.list_(pa.float64())
        return pa.nulls(n, kind) if values is None else pa.array(list(values.reshape(n, -1)), kind)

    return pa.table(
        {
            "group": pa.array([group.name] * n, pa.string()),
            "chain": pa.array(np.repeat(np.arange(chains), draws), pa.int32()),
            "draw": pa.array(np.tile(np.arange(draws), chains), pa.int32()),
            "beta": lists(group.beta),
            "sigma": lists(group.sigma),
            "beta_mean": lists(group.beta_mean),
        }
    )


def _write_abilities(writer: FolderWriter, abilities: Abilities, dimensions: tuple[str, ...]) -> None:
    n, k = abilities.mean.shape
    ids, place = pa.array(abilities.person_ids.to_list(), pa.string()), abilities.population
    tables = [
        pa.table(
            {
                "person_id": ids,
                "dimension": pa.array([dimensions[d]] * n, pa.string()),
                "mean": pa.array(np.ascontiguousarray(abilities.mean[:, d], dtype=np.float64)),
                "sd": pa.array(np.ascontiguousarray(abilities.sd[:, d], dtype=np.float64)),
                "n_responses": pa.array(np.ascontiguousarray(abilities.n_responses[:, d], dtype=np.int64)),
                "population": pa.nulls(n, pa.int32()) if place is None else pa.array(place, pa.int32()),
            }
        )
        for d in range(k)
    ]
    writer.tables("abilities", tables, split=("mean", "sd"))
    chains, draws = abilities.draw_mean.shape[:2]
    names = [f for f in ("draw_mean", "draw_sd", "correlation", *_BY_POPULATION) if getattr(abilities, f) is not None]
    flat = {f: getattr(abilities, f).reshape(chains * draws, -1) for f in names}
    columns = {name: pa.array(list(np.asarray(v, np.float64)), pa.list_(pa.float64())) for name, v in flat.items()}
    index = {"chain": np.repeat(np.arange(chains), draws), "draw": np.tile(np.arange(draws), chains)}
    table = pa.table({**{n: pa.array(v, pa.int32()) for n, v in index.items()}, **columns})
    writer.tables("ability_draws", [table], meta={"populations": list(abilities.populations)})


def read_calibration(reader: FolderReader, *, draws: bool = True) -> Calibration:
    """The calibration of a period; without draws of its items, views of one zero stand in their place."""
    convergence = reader.json("convergence")
    shape: tuple[int, int] = tuple(convergence.pop("draws_shape"))
    convergence["warnings"] = tuple(convergence["warnings"])
    layout = read_layout(reader, "calibration")
    extra: dict[str, dict[str, Any]] = {name: {} for name in layout.groups}
    for name, without in _no_draws(layout, shape).items():
        extra[name]["xi"] = read_draws(reader, "draws", layout, name) if draws else without
    _read_population(reader, layout, shape, extra)
    hyperprior = {
        row["group"]: np.array(row["values"]).reshape(2 * [round(len(row["values"]) ** 0.5)])
        for row in reader.frame("hyperprior").iter_rows(named=True)
    }
    extra[""] = {
        "abilities": _read_abilities(reader, tuple(layout.plain["dimensions"]), shape),
        "convergence": Convergence(**convergence),
        "beta_prior_precision": hyperprior,
        "fit": read_fit(reader),
    }
    return read_result(reader, "calibration", Calibration, GroupDraws, extra)


def _no_draws(layout: Layout, shape: tuple[int, int]) -> dict[str, Float32]:
    """The shape of every group's draws, without their memory."""
    sizes = {name: (*shape, n, len(layout.parameters(name))) for name, n in layout.n_items.items()}
    return {name: np.broadcast_to(np.float32(0), size) for name, size in sizes.items()}


def read_draws(reader: FolderReader, key: str, layout: Layout, group: str) -> Float32:
    """Draws of a group in a file, (chain, draw, item, parameter); `layout` describes the groups.

    One row group after the other: the file never stands beside the draws, and a transposed block stays in the cache.
    """
    part = reader.part(key)
    chains, draws = int(str(part.meta["chains"])), int(str(part.meta["draws"]))
    row_groups: list[tuple[str, int, int]] = part.meta["row_groups"]  # type: ignore[assignment]
    mine = [(number, start, end) for number, (name, start, end) in enumerate(row_groups) if name == group]
    parameters = layout.parameters(group)
    found = np.empty((chains * draws, mine[-1][2], len(parameters)), dtype=np.float32)
    for number, start, end in mine:
        if end > start:
            table = part.read([number], parameters)
            for k, name in enumerate(parameters):
                found[:, start:end, k] = _matrix(table.column(name)).T
    return found.reshape(chains, draws, *found.shape[1:])


def _matrix(column: pa.ChunkedArray) -> Float32:
    """A column of fixed-size lists as (rows, draws)."""
    width = column.type.list_size
    pieces = [
        chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, width) for chunk in column.chunks if len(chunk)
    ]
    return np.concatenate(pieces) if pieces else np.empty((0, width), dtype=np.float32)


def read_item_draws(reader: FolderReader, item_ids: Sequence[str]) -> dict[str, Float32]:
    """Draws of some items on the period's own metric: item id -> (chain, draw, parameter); only their rows are read."""
    layout = read_layout(reader, "calibration")
    ids = reader.table("calibration_items", ["item_id", "group"])
    place = {item: k for k, item in enumerate(ids.column("item_id").to_pylist())}
    wanted = {item: place[item] for item in dict.fromkeys(item_ids) if item in place}
    found: dict[str, Float32] = {}
    part = reader.part("draws")
    spans: list[tuple[int, int, int, str]] = []
    first = 0
    for number, (group, start, end) in enumerate(part.meta["row_groups"]):  # type: ignore[arg-type,var-annotated]
        spans.append((number, first, first + end - start, group))
        first += end - start
    for number, begin, end, group in spans:
        here = {item: row - begin for item, row in wanted.items() if begin <= row < end}
        if not here:
            continue
        parameters = layout.parameters(group)
        table = part.read([number], parameters)
        values = np.stack([_matrix(table.column(p)) for p in parameters], axis=-1)
        shape = (int(str(part.meta["chains"])), int(str(part.meta["draws"])), len(parameters))
        found |= {item: values[row].reshape(shape) for item, row in here.items()}
    return {item: found[item] for item in wanted}


def _read_population(
    reader: FolderReader, layout: Layout, shape: tuple[int, int], extra: dict[str, dict[str, Any]]
) -> None:
    table = reader.table("population")
    n = shape[0] * shape[1]
    for k, (name, plain) in enumerate(layout.groups.items()):
        f, p = len(plain["features"]), len(layout.parameters(name))
        piece = table.slice(k * n, n)
        for field, tail in (("beta", (f, p)), ("sigma", (p, p)), ("beta_mean", (f, p))):
            column = piece.column(field)
            if column.null_count:
                extra[name][field] = None
                continue
            values = np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks])
            extra[name][field] = values.reshape(*shape, *tail)


def read_populations(reader: FolderReader, n: int) -> tuple[tuple[str, ...], npt.NDArray[np.int32] | None]:
    """Names of the populations of n examinees, and the population of each, where that is known."""
    names: list[str] = reader.part("ability_draws").meta["populations"]  # type: ignore[assignment]
    place = reader.frame("abilities", ["population"])["population"].head(n)
    return tuple(names), None if place.null_count() else place.to_numpy()


def _read_abilities(reader: FolderReader, dimensions: tuple[str, ...], shape: tuple[int, int]) -> Abilities | None:
    if "abilities" not in reader:
        return None
    frame, k = reader.frame("abilities"), len(dimensions)
    n = frame.height // k

    def by_dimension(name: str) -> npt.NDArray[Any]:
        return np.ascontiguousarray(frame[name].to_numpy().reshape(k, n).T)

    table = reader.table("ability_draws")
    populations, place = read_populations(reader, n)

    def by_draw(name: str, *tail: int) -> npt.NDArray[np.float64]:
        return np.array(table.column(name).combine_chunks().flatten().to_numpy()).reshape(*shape, *tail)

    return Abilities(
        person_ids=frame["person_id"].head(n),
        mean=by_dimension("mean"),
        sd=by_dimension("sd"),
        n_responses=by_dimension("n_responses"),
        draw_mean=by_draw("draw_mean", k),
        draw_sd=by_draw("draw_sd", k),
        correlation=by_draw("correlation", k, k),
        populations=populations,
        population=place,
        **{f: by_draw(f, len(populations), k) if f in table.column_names else None for f in _BY_POPULATION},
    )


class AbilityGroups(NamedTuple):
    """Groups of examinees: names, ability means and SDs (groups, dimensions), sizes, and the dimensions' names."""

    names: tuple[str, ...]
    mean: npt.NDArray[np.float64]
    sd: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.int64]
    dimensions: tuple[str, ...]


def read_ability_groups(reader: FolderReader) -> AbilityGroups | None:
    """The period's groups of examinees; None where it came without abilities or is one population."""
    if "abilities" not in reader:
        return None
    dimensions = tuple(read_layout(reader, "calibration").plain["dimensions"])
    n = reader.frame("abilities", ["population"]).height // len(dimensions)
    names, place = read_populations(reader, n)
    if place is None or len(names) < 2:
        return None
    table = reader.table("ability_draws", list(_BY_POPULATION))
    shape = (-1, len(names), len(dimensions))
    mean, sd = (
        np.array(table.column(f).combine_chunks().flatten().to_numpy()).reshape(shape).mean(axis=0)
        for f in _BY_POPULATION
    )
    return AbilityGroups(names, mean, sd, np.bincount(place, minlength=len(names)), dimensions)
