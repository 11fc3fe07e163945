"""The responses of a period as they were used, and who gave them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.store.codec import decode_model, read_layout
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.tables.calibration import read_populations
from concal.data.period import GroupData, PeriodData
from concal.errors import BankError


def write_responses(writer: FolderWriter, data: PeriodData) -> None:
    """A row per response: its group, and the places of examinee and item in the period's lists."""
    frames = [
        pl.DataFrame(
            {
                "group": [name] * g.score.shape[0],
                "person": np.asarray(g.person, dtype=np.int32),
                "item": np.asarray(g.item, dtype=np.int32),
                "score": np.asarray(g.score, dtype=np.float64),
            },
            schema_overrides={"group": pl.String},
        )
        for name, g in data.groups.items()
    ]
    writer.frame("responses", pl.concat(frames))


def read_persons(reader: FolderReader) -> pl.Series:
    """Examinees of a period; empty where another engine's draws came without them."""
    if "persons" not in reader:
        return pl.Series("person_id", [], dtype=pl.String)
    return reader.frame("persons")["person_id"]


def read_returning(reader: FolderReader) -> pl.Series:
    """Examinees whose responses were left out of a period because another had them already."""
    if "returning" not in reader:
        return pl.Series("person_id", [], dtype=pl.String)
    return reader.frame("returning")["person_id"]


def read_period_data(reader: FolderReader, period: str) -> PeriodData:
    """A period's data as it was calibrated."""
    if "responses" not in reader:
        raise BankError(
            f"period {period!r} was added without its responses (--no-keep-responses, or draws of another engine)"
        )
    layout = read_layout(reader, "calibration")
    table, rows = reader.frame("calibration_items", ["item_id", "group", "X"]), reader.frame("responses")
    groups = {}
    for name, plain in layout.groups.items():
        own, answers = table.filter(pl.col("group") == name), rows.filter(pl.col("group") == name)
        groups[name] = GroupData(
            name=name,
            dimension=plain["dimension"],
            model=decode_model(plain["model"]),
            item_ids=tuple(own["item_id"].to_list()),
            features=tuple(plain["features"]),
            X=np.array(own["X"].to_list(), dtype=np.float64).reshape(own.height, len(plain["features"])),
            person=answers["person"].to_numpy(),
            item=answers["item"].to_numpy(),
            score=answers["score"].to_numpy(),
            coding=plain["coding"],
            lacking=tuple(plain.get("lacking", ())),
        )
    persons = read_persons(reader)
    populations, population = _populations(reader, period, persons.len())
    return PeriodData(
        period=period,
        dimensions=tuple(layout.plain["dimensions"]),
        person_ids=persons,
        groups=groups,
        populations=populations,
        population=population,
    )


def _populations(reader: FolderReader, period: str, n: int) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Groups of examinees, as the calibration had them."""
    names, place = read_populations(reader, n) if "abilities" in reader else ((), None)
    return ((period,), np.zeros(n, dtype=np.int32)) if place is None else (names, place)
