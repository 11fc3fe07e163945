"""Items that follow their model are flagged as often as the level says, whatever the model."""

import numpy as np
import pytest

from concal.calibration.period import calibrate_period
from concal.data.check import check_period
from concal.simulate import simulate_programme
from concal.spec import Spec

PERIODS, LEVEL = 20, 0.05


@pytest.mark.slow
@pytest.mark.parametrize("model", ["2pl", "3pl", "gpcm", "grm", "beta", "ordered_beta"])
def test_flags_under_the_model_are_at_their_level(model):
    group = {"model": model, "dimension": "x"} | ({"categories": 4} if model in ("gpcm", "grm") else {})
    options = {"max_sweeps": 600, "draws": 200}
    spec = Spec.parse({"bank": {"dimensions": ["x"]}, "groups": {"g": group}, "calibration": options})
    p = []
    for seed in range(1, PERIODS + 1):
        size = {"periods": 1, "items": 80, "examinees": 700, "responses_per_examinee": 20}
        made = simulate_programme(spec, seed=seed, **size)
        fit = calibrate_period(check_period(made.responses["2026Q1"], made.items, spec).data, spec, seed=seed).fit
        assert fit is not None
        p += fit.items["p_value"].drop_nulls().to_list()
    flagged = float(np.mean(np.array(p) <= LEVEL))
    print(f"{model}: {flagged:.3f} of {len(p)} items flagged")
    assert abs(flagged - LEVEL) < 3.0 * np.sqrt(LEVEL * (1.0 - LEVEL) / len(p))
