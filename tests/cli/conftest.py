"""A bank for looking at: three periods, ids that count past ten, one long id, an item that moved."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.calibration.fit.period_fit import fit_period
from concal.calibration.layout import lay_out
from concal.calibration.others import item_points, told_by_others
from concal.metric import move_items
from concal.spec import Spec

PATH = Path(__file__).parents[1] / "bank" / "programme.py"
LONG_ID = "reading-2026-form-B/passage-about-bees/question-12"


def _programme():
    spec = importlib.util.spec_from_file_location("cli_programme", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def new_id(old: str) -> str:
    """v03 is C3, e11 is W11; one has a long name."""
    if old == "v07":
        return LONG_ID
    return ("C" if old.startswith("v") else "W") + str(int(old[1:]))


@pytest.fixture(scope="session")
def looked_at(tmp_path_factory) -> Path:
    made = _programme()
    items = made.items_table().with_columns(pl.col("item_id").map_elements(new_id, return_dtype=pl.String))

    def calibrator(data, spec, **options):
        done = made.fake_calibrator(data, spec, **options)
        centres = {name: g.flat("xi").mean(axis=0) for name, g in done.groups.items()}
        layout, points = lay_out(data), {name: item_points(g.xi) for name, g in done.groups.items()}
        told = told_by_others(layout, points, done.abilities.mean, done.abilities.sd)
        fit = fit_period(data, layout, centres, told, done.abilities.sd)
        done = replace(done, fit=fit)
        if options["period"] != "2026Q2":
            return done
        group = done.groups["vocabulary"]
        xi = np.array(group.xi)
        at = group.item_ids.index("C3")
        xi[:, :, at] = move_items(xi[:, :, at], 1.0, 1.4)
        return replace(done, groups={**done.groups, "vocabulary": replace(group, xi=xi)})

    with pytest.MonkeyPatch.context() as patch:
        stopped = SimpleNamespace(perf_counter=lambda: 0.0, process_time=lambda: 0.0)
        for module in ("concal.cost", "concal.bank.building.next_version"):
            patch.setattr(f"{module}.time", stopped)
        for module in ("concal.bank.store.commit", "concal.bank.building.new_period", "concal.bank.bank"):
            patch.setattr(f"{module}.now", lambda: "2026-04-01T09:00:00+00:00")
        for module in ("concal.bank.store.commit", "concal.bank.bank"):
            patch.setattr(f"{module}.author", lambda: "ada@desk")
        content = made.SPEC.model_dump(exclude_none=True)
        rules = {"reading": {"slope": 20, "intercept": 100, "min": 10, "max": 160, "round": 5}}
        spec = Spec.parse({**content, "reporting": rules})
        bank = Bank.create(tmp_path_factory.mktemp("cli") / "bank", spec)
        for k, period in enumerate(("2026Q1", "2026Q2", "2026Q3")):
            rows = made.responses_table(period, first=2 * k).with_columns(
                pl.col("item_id").map_elements(new_id, return_dtype=pl.String)
            )
            bank.add(
                period, rows, items, calibrator=calibrator, reason="the quarter's responses, as they came" * (k == 1)
            )
        bank.release("spring")
        bank.exclude("C3", "2026Q2", reason="printed with a misleading picture in the second quarter")
    items.with_columns(pl.col("item_id") + "-new").head(3).write_csv(bank.path.parent / "new.csv")
    items.write_csv(bank.path.parent / "items.csv")
    made.responses_table("2026Q4", first=6).with_columns(
        pl.col("item_id").map_elements(new_id, return_dtype=pl.String)
    ).write_csv(bank.path.parent / "2026Q4.csv")
    return bank.path
