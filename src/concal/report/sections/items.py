"""The item explorer: every item's posterior and flags, and what its panels add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from concal.evaluate.attention import drifted
from concal.evaluate.misfit import change_in_words, misfit_flags
from concal.report.pack import Block
from concal.report.panels import PANELS
from concal.report.panels.seen import seen_items
from concal.report.section import Section
from concal.report.view import View

SOURCES = ("consensus", "fallback", "predicted")


def section(view: View, block: Block) -> Section:
    """All items by group; the panels add arrays of their own under their names."""
    place = {item: k for k, item in enumerate(view.item_ids)}
    first, why = worth_seeing(view, place)
    return Section(
        "items",
        "Item explorer",
        drawn={
            "sources": list(SOURCES),
            "groups": [_group(view, name, block) for name in view.consensus.groups],
            "flags": {str(place[item]): list(texts) for item, texts in flags(view).items() if item in place},
            "movers": movers(view.drift.items, place),
            "first": first,
            "why": why,
        },
    )


def _group(view: View, name: str, block: Block) -> dict[str, Any]:
    group = view.consensus.groups[name]
    return {
        "name": name,
        "dimension": group.dimension,
        "model": group.model.kind,
        "categories": group.model.n_categories,
        "parameters": list(group.model.parameters),
        "n": len(group.item_ids),
        "mean": block.rounded(group.mean, 1e-5),
        "sd": block.rounded(group.sd, 1e-5),
        "source": block.codes([SOURCES.index(str(s)) for s in group.source]),
        "n_responses": block.numbers(group.n_responses),
        "n_periods": block.numbers(group.n_periods),
        "seen": {
            own.period: {
                "item": block.places(own.places),
                "n": block.numbers(own.factors.n_responses[own.rows]),
            }
            for own in seen_items(view, name)
        },
        "panels": {panel.KEY: panel.numbers(view, name, block) for panel in PANELS},
    }


def worth_seeing(view: View, place: Mapping[str, int]) -> tuple[int, str]:
    """The item the explorer opens on, and why: the worst mover, else the one the most is known about."""
    moved = drifted(view.drift.items)
    if moved.height and moved["item_id"][0] in place:
        first = moved.row(0, named=True)
        said = f"in {first['period']} {change_in_words(first)} of the largest score"
        return place[first["item_id"]], f"The item whose drift matters most for scores: {said}."
    known = np.concatenate([g.n_periods * 1e9 + g.n_responses for g in view.consensus.groups.values()])
    return int(known.argmax()), "No item drifted; this is the one that was seen most."


def movers(drift: pl.DataFrame, place: Mapping[str, int]) -> dict[str, list[str]]:
    """Periods in which an item moved, by its place among the ids."""
    found: dict[str, list[str]] = {}
    moved = drifted(drift)
    for item, period in moved.select("item_id", "period").iter_rows() if moved.height else ():
        if item in place:
            found.setdefault(str(place[item]), []).append(period)
    return found


def flags(view: View) -> dict[str, tuple[str, ...]]:
    """What is worth knowing about single items, in words."""
    found = {item: [f"not converged in {periods}"] for item, periods in view.bank.unconverged().items()}
    for group in view.consensus.groups.values():
        for item, source in zip(group.item_ids, group.source.tolist(), strict=True):
            if source == "fallback":
                found.setdefault(item, []).append("population fallback: the responses do not identify the item")
            elif source == "predicted":
                found.setdefault(item, []).append("predicted from its features: nobody has answered it")
    moved = drifted(view.drift.items)
    for item, period, way in moved.select("item_id", "period", "direction").iter_rows() if moved.height else ():
        found.setdefault(item, []).append(f"drift in {period}: {way}")
    for item, text in misfit_flags(view.fit, view.fit_pairs, view.dif):
        found.setdefault(item, []).append(text)
    for act in view.acts.filter(~pl.col("idle")).iter_rows(named=True):
        why = f": {act['reason']}" if act["reason"] else ""
        if act["act"] == "exclude":
            whose = f" for {act['person_group']}" if act["person_group"] else ""
            found.setdefault(act["item_id"], []).append(f"excluded in {act['periods']}{whose}{why}")
        else:
            found.setdefault(act["item_id"], []).append(f"{act['new_id']} in {act['periods']}{why}")
            found.setdefault(act["new_id"], []).append(f"split from {act['item_id']}{why}")
    return {item: tuple(dict.fromkeys(texts)) for item, texts in found.items()}
