"""Tables of commands that need no bank, or a pooled fit, as people see them; see test_looks.py for the others."""

import os
from pathlib import Path

import polars as pl
import pytest

from concal.cli import main, views
from concal.cli.show import print_view

SNAPSHOTS = Path(__file__).parent / "snapshots"
WIDTHS = [80, 120, 160]
LONG = {"person_id": "psmith", "item_id": "reading-2026-form-B/passage-about-bees/question-12", "score": 1}


def settled(text: str, name: str, width: int) -> None:
    """Compare with the snapshot, or write it."""
    assert "…" not in text
    path = SNAPSHOTS / f"{name}-{width}.txt"
    if os.environ.get("CONCAL_SNAPSHOTS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def run(words: list[str], capsys) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(words)
    seen = capsys.readouterr()
    assert not left.value.code, seen.err
    return seen.out


@pytest.mark.parametrize("width", WIDTHS)
def test_simulate(width, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    size = ["--periods", "2", "--items", "60", "--examinees", "40", "--responses-per-examinee", "12"]
    settled(run(["simulate", "programme", *size], capsys), "simulate", width)


@pytest.mark.parametrize("width", WIDTHS)
def test_start(width, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    people = [f"p{k}" for k in range(30)]
    answers = [
        {"person_id": person, "item_id": f"{kind}{j}", "score": value(k, j)}
        for kind, value in (
            ("C", lambda k, j: (k + j) % 2),
            ("essay", lambda k, j: (k + j // 2) % 4),
            ("slider", lambda k, j: ((k + 3 * j) % 11) / 10),
        )
        for j in range(1, 13)
        for k, person in enumerate(people)
    ]
    pl.DataFrame([*answers, LONG], infer_schema_length=None).write_csv("answers.csv")
    kinds = {"item_id": [row["item_id"] for row in answers[::30]]}
    pl.DataFrame({**kinds, "length": range(36), "cefr": ["A1", "B2", "C1"] * 12}).write_csv("table.csv")
    settled(run(["start", "answers.csv", "table.csv", "--to", "drafted"], capsys), "start", width)


NAMES = {"method": "joint", "dimension": "comprehension", "model": "ordered_beta", "parameter": "log_width"}
ROWS = {
    "agreement": {**NAMES, "n": 24000, "share_screened": 0.0125, "mean_r": 0.99987, "mean_rmse": 0.0123, "sd_r": 0.9951,
                  "sd_rmse": 0.0042, "sd_ratio_low": 0.991, "sd_ratio_mid": 1.004, "sd_ratio_high": 1.012},
    "distance": {**NAMES, "n": 24000, "distance": 0.1234, "by_links": 0.0567, "by_items": 0.1091},
    "abilities": {**NAMES, "period": "2026-week-17", "mean": 0.31, "sd": 1.07, "pooled_mean": 0.312,
                  "pooled_sd": 1.068, "mean_difference": -0.0021, "sd_ratio": 1.0019,
                  "pairwise_mean_difference": 0.0104, "pairwise_sd_ratio": 0.996},
    "recovery": {**NAMES, "n": 24000, "rmse": 0.1234, "bias": -0.004, "coverage_50": 0.503, "coverage_90": 0.897,
                 "coverage_95": 0.949},
    "dif": {"item_id": "C12", "group": "vocabulary", "dimension": "comprehension", "person_group": "women",
            "n_responses": 1234, "flagged": True, "direction": "harder", "score_shift": -0.0123, "score_size": 0.0871,
            "item_distance": 31.25, "item_df": 2, "item_p_value": 0.00001, "item_q_value": 0.0004, "distance": 31.25,
            "df": 2, "p_value": 0.00001, "q_value": 0.0004, "d_shift": 0.21, "d_shift_sd": 0.05, "log_a_shift": -0.4,
            "log_a_shift_sd": 0.08},
    "doctor": {"check": "self test", "ok": True,
               "seen": "200 responses calibrated in 4.1 s, correlation with the truth .93, as it must be"},
    "steps": {"step": "fit all periods at once", "seconds": 61.25},
}  # fmt: skip
"""A row of each, as wide as such rows get."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_views(name, full, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    view = getattr(views, name.upper())
    row = {key: value for key, value in ROWS[name].items() if key in view.columns}
    assert set(view.shown) <= set(row)
    capsys.readouterr()
    print_view(pl.DataFrame([row, row]), view, full=full)
    settled(capsys.readouterr().out, f"{name}{'-full' * full}", width)
