"""The engine's posterior against NumPyro's NUTS on the same data: another sampler, another implementation."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from concal.calibration import priors

pytestmark = pytest.mark.slow


def load_benchmark(name):
    """A script of benchmarks/ as a module (benchmarks are not a package)."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def nuts():
    jax = pytest.importorskip("jax", reason="needs the extra concal[slow]")
    pytest.importorskip("numpyro", reason="needs the extra concal[slow]")
    jax.config.update("jax_enable_x64", True)
    yield load_benchmark("nuts")
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(
    ("model", "kind"),
    [(m, "plain") for m in ("2pl", "gpcm", "grm", "ordered_beta")] + [("2pl", "pooled"), ("gpcm", "guided")],
)
def test_posterior_equals_nuts(nuts, model, kind):
    """Both runs are long enough (about 1,000 effective draws) that Monte Carlo error is half of what is allowed."""
    data = nuts.make_data(model, 15, 150, 10 if kind == "pooled" else 15, kind=kind)
    tau = 1.0
    ours = nuts.sample_engine(data, tau, draws=4000, min_ess=1000)
    theirs = nuts.sample_nuts(data, tau, warmup=600, draws=750, chains=2, centred=False)
    for draws in (ours, theirs):
        assert min(nuts.effective(draws).values()) > 500
    rms, worst, ratio = nuts.posterior_difference(ours, theirs)
    print(f"\n{model}, {kind}: mean difference RMS {rms:.3f} SD, largest {worst:.3f}; median SD ratio {ratio:.3f}")
    assert rms < 0.1
    assert worst < 0.3
    assert 0.97 < ratio < 1.03


def test_prior_of_sigma_is_the_engines(nuts):
    rng, scales = np.random.default_rng(1), np.array([0.5, 0.3, 0.8])
    for root in rng.standard_normal((3, 3, 3)):
        L = np.linalg.cholesky(root @ root.T + np.eye(3))
        sigma = L @ L.T
        expected = priors.log_sigma_alone(np.linalg.slogdet(sigma)[1], np.diag(np.linalg.inv(sigma)), scales)
        np.testing.assert_allclose(nuts.log_sigma(L, scales), expected, rtol=1e-10)
