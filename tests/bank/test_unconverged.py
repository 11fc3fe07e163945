"""A period that has not converged is not committed, unless it is asked for; then it is marked wherever it shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.calibration.result import Calibration
from concal.calibration.sampler import WARMUP
from concal.calibration.sweep import NEWTON_START
from concal.cli import main
from concal.errors import ConvergenceError, DataWarning
from concal.report.sections.items import flags
from concal.report.view import View
from concal.spec import Spec

from .programme import SPEC, fake_calibrator, items_table, responses_table


def with_rhat(calibration: Calibration, bad: dict[str, float], *, converged: bool) -> Calibration:
    """The same draws with other R-hats of some items, and another verdict."""
    groups = {}
    for name, g in calibration.groups.items():
        rhat = g.rhat.copy()
        for item, value in bad.items():
            if item in g.item_ids:
                rhat[g.item_ids.index(item), 0] = value
        groups[name] = replace(g, rhat=rhat, population_rhat={"sigma[d,d]": 1.93}, population_ess={"sigma[d,d]": 11.0})
    reached = replace(
        calibration.convergence, converged=converged, max_rhat_population=1.93, min_ess_population=11.0, sweeps=20_000
    )
    return replace(calibration, groups=groups, convergence=reached, engine="concal")


def unconverged(*args: Any, **options: Any) -> Calibration:
    return with_rhat(fake_calibrator(*args, **options), {"v03": 1.4, "e01": 1.3}, converged=False)


def one_bad_item(*args: Any, **options: Any) -> Calibration:
    return with_rhat(fake_calibrator(*args, **options), {"v03": 1.4}, converged=True)


def add(bank: Bank, period: str, **options: Any) -> Any:
    return bank.add(period, responses_table(period), items_table(), **{"calibrator": fake_calibrator, **options})


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    bank = Bank.create(tmp_path / "bank", SPEC)
    add(bank, "Q1")
    return bank


def test_it_is_not_committed_and_says_what_and_where(bank: Bank) -> None:
    before = bank.items()
    with pytest.raises(ConvergenceError) as caught:
        add(bank, "Q2", calibrator=unconverged)
    text = str(caught.value)
    for part in (
        "period 'Q2' has not converged",
        "largest R-hat 1.930 (target 1.05), smallest bulk ESS 11 after 20,000 sweeps",
        "vocabulary: sigma[d,d] R-hat 1.930, ESS 11",
        "group 'vocabulary': 1 of 12 items above R-hat 1.1: 'v03'",
        "--max-sweeps 40000: it goes on where it stopped",
        "--accept-unconverged",
    ):
        assert part in text
    assert Bank(bank.path).version == 1
    assert Bank(bank.path).items().equals(before)
    assert list(bank.path.glob("work/calibration-Q2-*/checkpoint.npz"))


def test_accepted_it_is_marked_everywhere(bank: Bank, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(bank, "Q2", calibrator=unconverged, accept_unconverged=True)
    periods = bank.periods()
    assert periods["converged"].to_list() == [True, False]
    assert periods["n_unconverged"].to_list() == [0, 2]
    assert set(bank.items()["unconverged"]) == {"Q2", None}
    table = bank.parameters()
    answered = set(bank.calibration("Q2").group_of())
    assert set(table.filter(pl.col("unconverged") == "Q2")["item_id"]) == answered
    done = bank.export(tmp_path / "items.csv")
    assert set(done.unconverged) == answered
    assert set(pl.read_csv(tmp_path / "items.csv")["unconverged"]) == {"Q2", None}
    assert any("1 period not converged: 'Q2'" in text for text in bank.show()["warnings"])
    view = View(bank)
    assert flags(view)["v03"][:1] == ("not converged in Q2",)
    assert any("Q2: taken although it has not converged" in notice.text for notice in view.notices)
    with pytest.raises(SystemExit):
        main(["export", str(bank.path), "--to", str(tmp_path / "mirt.csv"), "--format", "mirt"])
    assert f"{len(answered)} items not converged in some period" in capsys.readouterr().err
    with pytest.warns(DataWarning, match=r"answered items had not converged in some period: 'v02'"):
        bank.score(responses_table("Q2", 2))
    with pytest.raises(SystemExit):
        main(["items", str(bank.path), "v03"])
    assert "unconverged" in capsys.readouterr().out
    bank.retract("Q2")
    with pytest.raises(SystemExit):
        main(["items", str(bank.path), "v03"])
    assert "unconverged" not in capsys.readouterr().out
    assert bank.items()["unconverged"].null_count() == bank.items().height


def test_one_item_alone_is_marked_and_no_anchor(bank: Bank) -> None:
    update = add(bank, "Q2", calibrator=one_bad_item)
    assert update.version == 2
    assert bank.unconverged() == {"v03": "Q2"}
    anchors = bank.anchors("Q2")
    assert anchors.filter(pl.col("item_id") == "v03")["kept"].to_list() == [False]


def test_draws_of_another_engine_are_judged_alike(bank: Bank) -> None:
    data = bank.check("Q2", responses_table("Q2"), items_table()).data
    theirs = replace(unconverged(data, SPEC, period="Q2", seed=1), engine="other")
    with pytest.raises(ConvergenceError, match="run longer chains in the engine the draws come from"):
        bank.add_calibration(theirs)
    assert bank.add_calibration(theirs, accept_unconverged=True).version == 2


def test_more_sweeps_go_on_where_it_stopped(tmp_path: Path) -> None:
    """The engine itself: too few sweeps are refused, more of them give what one long run gives."""
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["reading"]},
            "groups": {"g": {"model": "2pl", "dimension": "reading"}},
            "calibration": {"chains": 4, "draws": 100, "min_ess": 60.0, "max_rhat": 1.1, "max_item_rhat": 1.2},
        }
    )
    rng = np.random.default_rng(1)
    place = np.linspace(-1.5, 1.5, 12)
    right = rng.random((200, 12)) < 1 / (1 + np.exp(place - rng.standard_normal((200, 1))))
    ids = [f"i{j:02d}" for j in range(12)]
    responses = pl.DataFrame(right.astype(float), schema=ids).insert_column(
        0, pl.Series("person_id", [f"p{i}" for i in range(200)])
    )
    items = pl.DataFrame({"item_id": ids})
    once, twice, cut = (Bank.create(tmp_path / name, spec) for name in ("once", "twice", "cut"))
    assert once.add("Q1", responses, items, wide=True).convergence.converged
    assert 100 < NEWTON_START + WARMUP < 200
    for bank, limit in ((twice, 200), (cut, 100)):  # after the warm-up, and within it
        with pytest.raises(ConvergenceError, match="has not converged"):
            bank.add("Q1", responses, items, wide=True, max_sweeps=limit)
        assert bank.refresh().version == 0
        assert bank.add("Q1", responses, items, wide=True).convergence.converged
    mine = once.calibration("Q1")
    for bank in (twice, cut):
        theirs = bank.calibration("Q1")
        np.testing.assert_array_equal(mine.groups["g"].xi, theirs.groups["g"].xi)
        assert theirs.convergence.warnings == mine.convergence.warnings
