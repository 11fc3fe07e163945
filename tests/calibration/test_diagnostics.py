"""R-hat and effective sample sizes against arviz-stats, a slow plain reference, and what must not matter."""

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from concal.calibration.diagnostics import TAIL, diagnose

az = pytest.importorskip("arviz_stats.base").array_stats


def autoregressive(rng, chains, draws, parameters, phi):
    x = rng.normal(size=(chains, draws, parameters))
    for t in range(1, draws):
        x[:, t] += phi * x[:, t - 1]
    return x


def by_arviz(x, tail=TAIL):
    x = np.moveaxis(np.asarray(x, dtype=float), (0, 1), (-2, -1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return az.rhat(x), az.ess(x), az.ess(x, method="tail", prob=tail)


def assert_same(ours, theirs):
    for name, mine, other in zip(ours._fields, ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-8, err_msg=name)


# --- a slow, plain reference: whole autocorrelation functions, no tables, no shared sort ---


def plain_split(x):
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, x.shape[1] - half :]])


def plain_scores(x):
    rank = stats.rankdata(x).reshape(x.shape)
    return stats.norm.ppf((rank - 3 / 8) / (x.size + 1 / 4))


def plain_rhat(z):
    n = z.shape[1]
    between, within = n * z.mean(axis=1).var(ddof=1), z.var(axis=1, ddof=1).mean()
    return np.sqrt((between / within + n - 1) / n)


def plain_ess(z):
    n = z.shape[1]
    dev = z - z.mean(axis=1, keepdims=True)
    acov = np.array([np.mean([d[: n - t] @ d[t:] / n for d in dev]) for t in range(n)])
    within = acov[0] * n / (n - 1)
    rho = 1 - (within - acov) / (acov[0] + z.mean(axis=1).var(ddof=1))
    rho[0] = 1.0
    pairs = []
    for t in range(0, n - 1, 2):
        if t > 0 and (t > n - 3 or rho[t] + rho[t + 1] <= 0):
            break
        pairs.append([rho[t], rho[t + 1]])
    t = 2 * len(pairs)
    first_pair_negative = pairs[0][0] + pairs[0][1] <= 0
    extra = max(rho[t], 0.0) if t <= n - 3 and not first_pair_negative else 0.0
    for k in range(1, len(pairs)):
        if sum(pairs[k]) > sum(pairs[k - 1]):
            pairs[k] = [sum(pairs[k - 1]) / 2] * 2
    return pairs, extra, z.size


def draws_for_plain(seed):
    return autoregressive(np.random.default_rng(seed), 3, 60, 1, 0.7)[..., 0]


@pytest.mark.parametrize("seed", range(5))
def test_plain_reference_rhat(seed):
    x = draws_for_plain(seed)
    split = plain_split(x)
    folded = np.abs(split - np.median(split))
    expected = max(plain_rhat(plain_scores(split)), plain_rhat(plain_scores(folded)))
    assert diagnose(x).rhat == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_plain_reference_ess(seed):
    x = draws_for_plain(seed)
    pairs, extra, size = plain_ess(plain_scores(plain_split(x)))
    tau = -1 + 2 * np.sum(pairs) + extra
    assert diagnose(x).ess_bulk == pytest.approx(size / tau, rel=1e-10)


# --- arviz-stats ---


@pytest.mark.reference
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.95, -0.6])
@pytest.mark.parametrize(("chains", "draws"), [(8, 125), (4, 100), (2, 201), (5, 33), (1, 50)])
def test_equals_arviz(chains, draws, phi):
    x = autoregressive(np.random.default_rng(chains * draws), chains, draws, 5, phi)
    assert_same(diagnose(x), by_arviz(x))


@pytest.mark.reference
@pytest.mark.parametrize("draws", range(4, 11))
def test_equals_arviz_with_few_draws(draws):
    x = autoregressive(np.random.default_rng(draws), 4, draws, 15, 0.3)
    assert_same(diagnose(x), by_arviz(x))


@pytest.mark.reference
@pytest.mark.parametrize("coarse", [np.round, np.sign, lambda x: x > 1.5, lambda x: np.minimum(x, 0.0)])
def test_equals_arviz_with_ties(coarse):
    x = coarse(autoregressive(np.random.default_rng(3), 4, 75, 15, 0.6)).astype(float)
    assert_same(diagnose(x), by_arviz(x))


@pytest.mark.reference
def test_equals_arviz_when_chains_disagree():
    rng = np.random.default_rng(4)
    x = autoregressive(rng, 4, 100, 20, 0.5) + 3 * rng.normal(size=(4, 1, 20))
    x[:, 50:, ::2] *= 4.0
    result = diagnose(x)
    assert result.rhat.max() > 1.5
    assert_same(result, by_arviz(x))


@pytest.mark.reference
def test_float32_as_arviz_in_float64():
    x = autoregressive(np.random.default_rng(5), 4, 100, 20, 0.5).astype(np.float32)
    assert_same(diagnose(x), by_arviz(x))


def test_float32_order_of_zeros_and_infinities():
    x = np.random.default_rng(12).choice([-np.inf, -1.0, -0.0, 0.0, 1e-40, 2.0, np.inf], size=(4, 40, 9))
    for mine, other in zip(diagnose(x.astype(np.float32)), diagnose(x.astype(np.float32).astype(float)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


@pytest.mark.reference
def test_other_tail_quantiles():
    x = autoregressive(np.random.default_rng(6), 4, 101, 20, 0.5)
    assert_same(diagnose(x, tail=(0.05, 0.95)), by_arviz(x, (0.05, 0.95)))


@pytest.mark.reference
def test_default_tail_is_that_of_the_installed_arviz():
    from arviz_base import rcParams

    assert (1 - rcParams["stats.ci_prob"], rcParams["stats.ci_prob"]) == TAIL


# --- edges ---


def test_draws_that_never_change():
    x = np.full((4, 51, 2), 0.1)
    result = diagnose(x)
    assert np.isnan(result.rhat).all()
    np.testing.assert_array_equal(result.ess_bulk, 200.0)
    np.testing.assert_array_equal(result.ess_tail, 200.0)
    assert_same(result, by_arviz(x))


def test_chains_stuck_at_values_of_their_own():
    x = np.repeat(np.array([0.1, 0.4, 0.2, 0.9])[:, None], 50, axis=1)
    result = diagnose(x)
    assert result.rhat == np.inf
    assert result.ess_bulk < 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nan_touches_only_its_parameter(dtype, sign):
    x = np.random.default_rng(7).normal(size=(4, 50, 3)).astype(dtype)
    clean = diagnose(x)
    x[2, 10, 1] = np.copysign(np.nan, sign)
    result = diagnose(x)
    for mine, before in zip(result, clean, strict=True):
        assert np.isnan(mine[1])
        np.testing.assert_array_equal(mine[[0, 2]], before[[0, 2]])


@pytest.mark.parametrize("shape", [(4, 3, 2), (0, 100, 2), (4, 0, 2)])
def test_too_few_draws_are_nan(shape):
    assert all(np.isnan(value).all() and value.shape == (2,) for value in diagnose(np.zeros(shape)))


def test_one_chain_has_ess_but_no_rhat():
    result = diagnose(np.random.default_rng(8).normal(size=(1, 100, 3)))
    assert np.isnan(result.rhat).all()
    assert (result.ess_bulk > 20).all()


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 1, 2)])
def test_shapes(shape):
    x = np.random.default_rng(9).normal(size=(4, 20, *shape))
    result = diagnose(x)
    assert all(value.shape == shape for value in result)
    if np.prod(shape) > 1:
        np.testing.assert_array_equal(result.rhat.ravel(), diagnose(x.reshape(4, 20, -1)).rhat)


def test_kinds_skip_the_rest():
    x = np.random.default_rng(10).normal(size=(4, 20, 5))
    every, some = diagnose(x), diagnose(x, kinds=("rhat", "ess_bulk"))
    np.testing.assert_array_equal(some.rhat, every.rhat)
    np.testing.assert_array_equal(some.ess_bulk, every.ess_bulk)
    assert np.isnan(some.ess_tail).all()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="ess_tial"):
        diagnose(np.zeros((2, 4)), kinds=("ess_tial",))
    with pytest.raises(ValueError, match="chain, draw"):
        diagnose(np.zeros(4))


def test_blocks_and_threads_do_not_matter(monkeypatch):
    x = autoregressive(np.random.default_rng(11), 4, 30, 57, 0.5).astype(np.float32)
    whole = diagnose(x, threads=1)
    monkeypatch.setattr("concal.calibration.diagnostics._BLOCK", 120 * 5)
    for mine, other in zip(diagnose(x, threads=3), whole, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.property
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    draws=st.integers(4, 40),
    phi=st.floats(-0.9, 0.95),
    move=st.sampled_from([np.exp, np.cbrt, lambda x: 7 * x - 3, lambda x: np.log1p(np.exp(x))]),
)
def test_bulk_ess_depends_on_ranks_alone(seed, draws, phi, move):
    x = autoregressive(np.random.default_rng(seed), 3, draws, 3, phi)
    np.testing.assert_array_equal(diagnose(move(x)).ess_bulk, diagnose(x).ess_bulk)


@pytest.mark.property
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    draws=st.integers(4, 40),
    shift=st.integers(-8, 8),
    scale=st.sampled_from([0.5, 4.0]),
)
def test_everything_survives_a_change_of_unit(seed, draws, shift, scale):
    # whole numbers, so that moving them rounds nothing and ties stay ties
    x = np.round(1000 * autoregressive(np.random.default_rng(seed), 3, draws, 3, 0.5))
    for mine, other in zip(diagnose(scale * x + shift), diagnose(x), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


@pytest.mark.property
@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), draws=st.integers(4, 60), values=st.integers(2, 9))
def test_order_of_chains_does_not_matter(seed, draws, values):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, values, size=(4, draws, 2)).astype(float)
    a, b = diagnose(x), diagnose(x[rng.permutation(4)])
    np.testing.assert_allclose(a.rhat, b.rhat, rtol=1e-9)


def test_draws_in_any_order_of_axes_are_not_copied_as_a_whole():
    stored = np.random.default_rng(3).normal(size=(50, 4000, 2, 8)).astype(np.float32)  # draw, item, parameter, chain
    view = np.moveaxis(stored, -1, 0)
    diagnose(view[:, :, :10], threads=1)
    tracemalloc.start()
    try:
        found = diagnose(view, threads=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found.rhat, diagnose(np.ascontiguousarray(view), threads=2).rhat)
    assert peak < stored.nbytes
