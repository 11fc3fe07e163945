"""Simulation-based calibration with few data sets; `benchmarks/sbc.py` runs it at length."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def sbc():
    """The script as a module (benchmarks are not a package)."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "sbc.py"
    spec = importlib.util.spec_from_file_location("benchmark_sbc", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("model", ["2pl", "3pl", "gpcm", "grm", "beta", "ordered_beta"])
def test_simulated_values_rank_uniformly_among_draws(sbc, model):
    names, ranks, _ = sbc.run(model, datasets=40, processes=1, seed=2)
    assert ranks.shape == (40, len(names))
    assert not sbc.failures(sbc.check_ranks(names, ranks))


def test_checks_pass_uniform_ranks_and_find_wrong_ones(sbc):
    """The checks themselves: uniform ranks pass; off centre by 0.3 SD, 20 % too narrow or too wide fail."""
    rng = np.random.default_rng(1)
    names = ["d|a", "d|b", "beta|c"]
    top = sbc.LANES * sbc.REPEATS

    def ranks(shift, spread):
        truth, draws = rng.standard_normal((300, 3, 1)), rng.standard_normal((300, 3, top))
        return (shift + spread * draws < truth).sum(axis=2)

    assert not sbc.failures(sbc.check_ranks(names, ranks(0.0, 1.0)))
    for shift, spread in [(0.3, 1.0), (0.0, 0.8), (0.0, 1.3)]:
        assert sbc.failures(sbc.check_ranks(names, ranks(shift, spread)))
