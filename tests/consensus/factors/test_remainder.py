"""Tables' gradients regressed on phi, and the remainder they leave."""

import numpy as np
import pytest
from exact_periods import exact_period, factor_of, prior_of, table_value

from concal import metric
from concal.consensus.factors.gaussians import from_gradients
from concal.consensus.factors.remainder import DRAWS, fit_remainder, table_of, table_regression, used_bins
from concal.response import make_model


@pytest.fixture(scope="module", params=[("2pl", None), ("gpcm", 4), ("ordered_beta", None)], ids=lambda m: m[0])
def group(request):
    model = make_model(*request.param)
    return exact_period(model, prior_of(model)[0] + 0.2, 80, 5).group


def test_regression_is_that_of_numpy(group):
    """Least squares of differences of l_T on phi over the draws that are used."""
    p = len(group.model.parameters)
    s = group.n_draws
    xi = group.flat("xi")[np.arange(DRAWS) * s // DRAWS, 0]
    phi, step = metric.phi_of(xi), 2e-3
    l = np.stack(
        [
            (table_value(group, metric.xi_of(phi + step * e)) - table_value(group, metric.xi_of(phi - step * e)))
            / (2 * step)
            for e in np.eye(p)
        ],
        axis=1,
    )
    at = phi.mean(axis=0) + 0.05
    design = np.column_stack([np.ones(DRAWS), phi - at])
    fitted, *_ = np.linalg.lstsq(design, l, rcond=None)
    value, slope = table_regression(group, table_of(group), at[None])
    expected = -0.5 * (fitted[1:] + fitted[1:].T)
    np.testing.assert_allclose(slope[0], expected, atol=0.02 * np.abs(expected).max())
    # symmetrised, so through the mean of the draws rather than the intercept
    mean = l.mean(axis=0) + expected @ (phi.mean(axis=0) - at)
    np.testing.assert_allclose(value[0], mean, atol=0.02 * np.abs(l).max())


def test_the_factor_has_the_slopes_it_was_fitted_to(group):
    """Averaged over the draws, the gradient of table and remainder is the likelihood's; its slope too, where it can."""
    Q, l, mean, covariance = from_gradients(group, np.zeros((2, 2)))
    dQ, dh = fit_remainder(group, table_of(group), Q, l, mean, covariance)
    value, slope = table_regression(group, table_of(group), mean)
    np.testing.assert_allclose(value[0] + dh[0] - dQ[0] @ mean[0], l[0], rtol=1e-8, atol=1e-8)
    assert np.linalg.eigvalsh(dQ[0])[0] > -1e-9
    lacking = np.linalg.eigvalsh(Q[0] - slope[0])
    if lacking[0] > 0:
        np.testing.assert_allclose(dQ[0], 0.5 * (Q[0] + Q[0].T) - slope[0], rtol=1e-7, atol=1e-9)


def test_bins_in_use():
    count = np.zeros((3, 5, 2))
    count[0], count[1, :2, 1] = 1.0, 3.0
    np.testing.assert_array_equal(used_bins(count), [5, 2, 0])


def test_few_draws_are_used_more_than_once():
    model = make_model("2pl")
    period = exact_period(model, prior_of(model)[0], 50, 6)
    from dataclasses import replace

    few = replace(period, group=replace(period.group, xi=period.group.xi[:, :3]))
    factor = factor_of(few)
    assert np.isfinite(factor.dQ).all()
    assert np.isfinite(factor.dh).all()
