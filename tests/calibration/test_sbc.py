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
@pytest.mark.parametrize(
    "model", ["2pl", "3pl", "gpcm", "grm", "beta", "ordered_beta", "pooled", "person_groups", "guided"]
)
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


def test_the_anchor_of_a_guided_period_is_drawn_from_its_posterior(sbc):
    """Given the outside observation alone, density A N(image; m, S) N(0; d, .) N(0; log a, .) over anchor and link."""
    rng = np.random.default_rng(3)
    guide = sbc.draw_guide(1, 2, rng)
    drawn = [sbc.draw_anchor(guide, rng) for _ in range(20_000)]
    d, log_a, log_A, B = np.array([(*xi[0], *link) for xi, link in drawn]).T
    precision = np.linalg.inv(guide.covariance[0])

    def slopes(log_A, B, d, log_a):
        """Slopes of that log density in (log A, B): their mean over the posterior is zero."""
        gap = np.array([np.exp(log_A) * d + B, log_a - log_A]) - guide.mean[0][:, None]
        pull = precision @ gap
        return 1.0 - (pull[0] * np.exp(log_A) * d - pull[1]), -pull[0]

    for slope in slopes(log_A, B, d, log_a):
        assert abs(slope.mean()) < 4.0 * slope.std() / np.sqrt(len(slope))
    for value, sd, slope in ((d, sbc.ANCHOR[0], np.exp(log_A)), (log_a, sbc.ANCHOR[1], None)):
        gap = np.array([np.exp(log_A) * d + B, log_a - log_A]) - guide.mean[0][:, None]
        pull = precision @ gap
        score = -value / sd**2 - (pull[0] * slope if slope is not None else pull[1])
        assert abs(score.mean()) < 4.0 * score.std() / np.sqrt(len(score))
