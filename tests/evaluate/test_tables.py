"""The paper's layout, as text."""

import json
from dataclasses import replace

import polars as pl
import pytest
from pooled_worlds import PERIODS, make_world

from concal.bank.evaluation import Evaluation, from_content
from concal.evaluate.agreement import ability_agreement, agreement
from concal.evaluate.distance import split_distance
from concal.evaluate.recovery import recovery
from concal.evaluate.tables import notes, paper_table, to_latex, to_markdown


@pytest.fixture(scope="module")
def evaluation():
    world = make_world()
    found = agreement(world.consensus, world.pooled, world.calibrations.values())
    return Evaluation(
        name="pooled",
        reference=PERIODS[0],
        periods=PERIODS,
        methods=("analytic",),
        agreement=found.table,
        overall=found.overall,
        distance=split_distance(found.pairs, {"analytic": world.consensus}),
        abilities=ability_agreement(world.calibrations, world.links, world.consensus.links, world.pooled, PERIODS),
        recovery=recovery(found.pairs, world.truth, world.pooled),
        pairs=found.pairs,
        fallback={"share": 0.01, "items": 2, "by_method": {"analytic": {"share": 0.01, "items": 2}}},
        cost={"pooled_seconds": 30.0, "pooled_peak_mib": 300.0, "update_seconds": {"2026Q1": 4.0, "2026Q2": 5.0}},
        version=3,
    )


def test_rows_are_the_papers(evaluation):
    table = paper_table(evaluation)
    assert table.columns == ["", " ", "d analytic", "d published", "log a analytic", "log a published"]
    assert table["d published"].to_list() == ["0.998", "0.129", "0.970", "0.066", "0.91", "0.94", "0.94"]
    assert table["log a published"].to_list() == ["0.991", "0.081", "0.920", "0.036", "0.96", "0.95", "0.98"]
    assert table["d analytic"][1] == "0.050"
    assert table["d analytic"].to_list()[4:] == ["0.90"] * 3


def test_markdown_and_latex(evaluation):
    assert "| Post. mean | r" in to_markdown(paper_table(evaluation))
    latex = to_latex(evaluation)
    assert latex.count(r"\\") == 9
    assert latex.count(r"\addlinespace") == 2
    assert all(
        line.count("&") == 5 for line in latex.splitlines() if line.startswith(("Post", "SD", " & low", " & mid"))
    )


def test_notes_name_the_paper(evaluation):
    text = " ".join(notes(evaluation))
    assert "removed 0.0%" in text
    assert "(published 1.9%)" in text
    assert "Ability means differ by at most 0.650 (published 0.08)" in text
    assert "Pooled fit 30 s, peak memory 300 MiB; updates 4 to 5 s a period." in text


def test_the_papers_method_stands_beside_the_published_figures(evaluation):
    again = evaluation.overall.with_columns(method=pl.lit("paper"))
    both = replace(evaluation, methods=("analytic", "paper"), overall=pl.concat([evaluation.overall, again]))
    assert paper_table(both).columns[2:5] == ["d analytic", "d paper", "d published"]
    assert paper_table(both)["d paper"].to_list() == paper_table(both)["d analytic"].to_list()


def test_json_shape(evaluation):
    content = json.loads(json.dumps(evaluation.to_json()))
    row = content["agreement"][0]
    assert set(row) == {
        *("method", "dimension", "model", "parameter", "n", "share_screened"),
        *("mean_r", "mean_rmse", "sd_r", "sd_rmse", "sd_ratio"),
    }
    assert set(row["sd_ratio"]) == {"low", "mid", "high"}
    assert {"period", "dimension", "mean_difference", "sd_ratio"} <= set(content["abilities"][0])
    assert {"share", "items"} <= set(content["fallback"])
    assert {"pooled_seconds", "pooled_peak_mib", "update_seconds"} <= set(content["cost"])
    assert set(content["recovery"][0]["coverage"]) == {"50", "90", "95"}


def test_kept_evaluation_comes_back(evaluation):
    back = from_content(json.loads(json.dumps(evaluation.content())), evaluation.frames())
    assert back.content() == evaluation.content()
    for name, frame in evaluation.frames().items():
        assert isinstance(frame, pl.DataFrame)
        assert frame.equals(getattr(back, name))
