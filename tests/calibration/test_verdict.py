"""What a run that missed its targets is told to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from concal.calibration.delivered import DeliveredError
from concal.calibration.targets import Reached, shortfall
from concal.calibration.verdict import error_text, unconverged_text
from concal.spec import CalibrationSpec


def text_of(*, worst: bool = True, **reached: Any) -> str:
    """Of a run that reached this; `worst`: one population parameter and one item lag."""
    spec = CalibrationSpec(**reached.pop("spec", {}))
    rhat = np.array([1.4 if worst else 1.0, 1.0])
    group = SimpleNamespace(
        name="g",
        item_ids=("a", "b"),
        n_items=2,
        worst_rhat=rhat,
        population_rhat={"beta": 1.3 if worst else 1.0},
        population_ess={"beta": 20.0},
    )
    convergence = SimpleNamespace(
        **{
            "converged": False,
            "sweeps": 20_000,
            "seconds": 100.0,
            "max_rhat_population": 1.3,
            "min_ess_population": 20.0,
            "mean_error": 0.2,
            "sd_error": 0.3,
            **reached,
        }
    )
    period: Any = SimpleNamespace(period="Q1", engine="concal", convergence=convergence, groups={"g": group})
    return unconverged_text(period, spec)


def test_a_run_out_of_sweeps_needs_more_of_them() -> None:
    assert "--max-sweeps 40000: it goes on where it stopped" in text_of(spec={"max_sweeps": 20_000})
    # stuck items stop a run whose other targets held early: more sweeps than the limit in force, not fewer
    assert "--max-sweeps 40000" in text_of(sweeps=400, spec={"max_sweeps": 20_000})


def test_a_run_out_of_minutes_needs_more_of_those() -> None:
    text = text_of(sweeps=190, seconds=61.0, spec={"max_minutes": 1.0, "max_sweeps": 20_000})
    assert "it stopped after 1 minute (calibration.max_minutes): give it more in bank.toml" in text
    assert "--max-sweeps" not in text
    both = text_of(sweeps=20_000, seconds=61.0, spec={"max_minutes": 1.0, "max_sweeps": 20_000})
    assert "--max-sweeps 40000" in both
    assert "more minutes (calibration.max_minutes)" in both


def test_where_sds_alone_lag_a_wider_target_is_named() -> None:
    lagging = {"max_rhat_population": 1.03, "mean_error": 0.03, "sd_error": 0.073, "worst": False}
    assert "a calibration.sd_error that you can live with, e.g. 0.08" in text_of(**lagging)
    for met in ({"max_rhat_population": 1.2}, {"mean_error": 0.06}, {"sd_error": 0.02}, {"sd_error": float("inf")}):
        assert "calibration.sd_error" not in text_of(**lagging | met)


def test_groups_are_only_named_above_where_they_are() -> None:
    assert "in the groups named above" in text_of()
    text = text_of(worst=False)
    assert "named above" not in text
    assert "fewer parameters (a shorter formula" in text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (0.123, "12.3%"),
        (9.99, "999.0%"),
        (10.1, ">1,000%"),
        (float("inf"), "not yet known"),
        (float("nan"), "not yet known"),
    ],
)
def test_an_error_that_is_no_number_yet_is_not_printed_as_one(error: float, text: str) -> None:
    assert error_text(error) == text
    if np.isnan(error):
        return
    assert f"{text} of an SD" in text_of(mean_error=error).replace("is not", "not")
    assert text in shortfall(Reached(1.2, 10.0, DeliveredError(error, 0.1)), CalibrationSpec(), 300)
