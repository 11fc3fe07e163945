"""The checked data of a period as tables: everything a calibration depends on, to be read by another process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from concal.bank.store.codec import decode_model, encode_model
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.tables.responses import write_responses
from concal.data.period import GroupData, Guide, PeriodData


def write_data(writer: FolderWriter, data: PeriodData) -> None:
    """Write it."""
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
            "lacking": list(g.lacking),
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


def read_data(reader: FolderReader) -> PeriodData:
    """What `write_data` wrote."""
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
            lacking=tuple(plain["lacking"]),
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
