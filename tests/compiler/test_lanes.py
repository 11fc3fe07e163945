"""The compiled float32 lanes: elementary functions, random numbers, and every model's kernels against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from concal.compiler import (
    LANES,
    call_curve,
    call_extra_terms,
    call_factored,
    call_terms,
    kernel,
    normal_pair,
    put,
    row,
    splat,
    uniforms,
)
from concal.response import arithmetic, make_model, model_class, model_names
from concal.response.base import n_extra_outputs
from concal.response.registry import kernels

# --- elementary functions ---

FUNCTIONS = ("exp", "log", "sigmoid")


@kernel
def run_functions(x, out):
    for i in range(x.shape[0]):
        v = row(x, (i,))
        put(out, (0, i), arithmetic.exp(v))
        put(out, (1, i), arithmetic.log(v))
        put(out, (2, i), arithmetic.sigmoid(v))


@kernel
def run_choices(x, y, out):
    for i in range(x.shape[0]):
        v, w = row(x, (i,)), row(y, (i,))
        put(out, (0, i), arithmetic.maximum(v, w))
        put(out, (1, i), arithmetic.minimum(v, w))
        put(out, (2, i), arithmetic.where_less(v, w, v, 7.0))
        put(out, (3, i), arithmetic.where_less(0.5, v, -1.0, w))


def compiled(name, values):
    x = np.asarray(values, dtype=np.float32)
    assert x.size % LANES == 0
    out = np.empty((len(FUNCTIONS), x.size // LANES, LANES), dtype=np.float32)
    run_functions(x.reshape(-1, LANES), out)
    return x.astype(np.float64), out[FUNCTIONS.index(name)].ravel().astype(np.float64)


def worst_error(name, values, floor):
    """Largest |error| over max(|exact|, floor)."""
    x, got = compiled(name, values)
    exact = getattr(arithmetic, name)(x)
    return np.max(np.abs(got - exact) / np.maximum(np.abs(exact), floor))


N = 1 << 16
POSITIVE = np.concatenate([np.geomspace(1e-30, 1e30, N), np.linspace(0.5, 2.0, N), 1 + np.geomspace(1e-6, 0.5, N)])


@pytest.mark.parametrize(
    ("name", "values", "floor", "limit"),
    [
        ("exp", np.linspace(-86.9, 87.9, N), 0.0, 2e-7),
        ("log", POSITIVE, 1e-30, 2e-7),
        ("sigmoid", np.linspace(-86.0, 86.0, N), 0.0, 2e-7),
    ],
)
def test_accuracy(name, values, floor, limit):
    error = worst_error(name, values, floor)
    assert error < limit, f"{name}: worst error {error:.2e}"


def test_exp_saturates():
    x, got = compiled("exp", np.linspace(-700, 700, 64))
    assert np.isfinite(got).all()
    assert (got > 0).all()
    assert (np.diff(got) >= 0).all()
    assert got[-1] > 1e38
    assert got[0] < 1e-37
    assert x[0] == -700


def test_sigmoid_is_symmetric_and_in_bounds():
    x, got = compiled("sigmoid", np.linspace(-700, 700, 1 << 12))
    assert (got >= 0).all()
    assert (got <= 1).all()
    assert (np.diff(got) >= 0).all()
    _, mirrored = compiled("sigmoid", -x)
    np.testing.assert_allclose(got + mirrored, 1.0, atol=1.3e-7)


def test_maximum_minimum_where_less():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 50, LANES)).astype(np.float32)
    y[::3] = x[::3]  # ties go to `otherwise`
    out = np.empty((4, 50, LANES), dtype=np.float32)
    run_choices(x, y, out)
    np.testing.assert_array_equal(out[0], np.maximum(x, y))
    np.testing.assert_array_equal(out[1], np.minimum(x, y))
    np.testing.assert_array_equal(out[2], np.where(x < y, x, np.float32(7)))
    np.testing.assert_array_equal(out[3], np.where(x > 0.5, np.float32(-1), y))


# --- random numbers ---


@kernel
def run_uniforms(seed, unit, sweep, stream, out):
    for k in range(unit.size):
        u = uniforms(seed, unit[k], sweep, stream)
        put(out, (k, 0), u[0])
        put(out, (k, 1), u[1])
        put(out, (k, 2), u[2])
        put(out, (k, 3), u[3])


@kernel
def run_normals(u, out):
    for k in range(u.shape[0]):
        first, second = normal_pair(row(u, (k, 0)), row(u, (k, 1)))
        put(out, (k, 0), first)
        put(out, (k, 1), second)


def draw_uniforms(seed, unit, sweep=0, stream=0):
    unit = np.atleast_1d(np.asarray(unit, dtype=np.int64))
    out = np.empty((unit.size, 4, LANES), dtype=np.float32)
    run_uniforms(seed, unit, sweep, stream, out)
    return out


def philox(counter, key):
    """Philox 4x32-10 in whole numbers."""
    c, k = list(counter), list(key)
    word = 0xFFFFFFFF
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & word, (first >> 32) ^ c[3] ^ k[1], first & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


@pytest.mark.reference
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # known answers published with Random123 (Salmon, Moraes, Dror and Shaw, 2011)
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_reference_philox_gives_the_published_words(counter, key, words):
    assert " ".join(f"{w:08x}" for w in philox(counter, key)) == words


@pytest.mark.reference
@pytest.mark.parametrize(
    ("seed", "unit", "sweep", "stream"),
    [
        (0, 0, 0, 0),
        (1, 2, 3, 4),
        (0x299F31D0A4093822, 0x243F6A88, 0x85A308D3, 0x13198A2E),
        (2**62 + 5, 10**6, 10**5, 9),
    ],
)
def test_uniforms_are_philox(seed, unit, sweep, stream):
    got = draw_uniforms(seed, unit, sweep, stream)[0].astype(np.float64)
    key = (seed & 0xFFFFFFFF, seed >> 32)
    for lane in range(LANES):
        words = np.array(philox((unit, sweep, stream, lane), key), dtype=np.float64)
        np.testing.assert_allclose(got[:, lane], words / 2**32, atol=2.0**-23)


def test_uniforms_lie_strictly_inside():
    u = draw_uniforms(3, np.arange(1 << 20))
    assert u.min() > 0
    assert u.max() < 1
    assert u.min() < 1e-6
    assert u.max() > 1 - 1e-6


def test_uniforms_are_uniform_and_lanes_independent():
    u = draw_uniforms(11, np.arange(20_000), sweep=5, stream=2).astype(np.float64)
    for column in u.reshape(20_000, -1).T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    correlation = np.corrcoef(u.reshape(20_000, -1).T) - np.eye(4 * LANES)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(20_000)


def test_every_part_of_the_counter_matters():
    base = draw_uniforms(1, 2, 3, 4)
    for other in ((2, 2, 3, 4), (1 + 2**40, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4), (1, 2, 3, 5)):
        assert not np.any(draw_uniforms(*other) == base)
    np.testing.assert_array_equal(draw_uniforms(1, 2, 3, 4), base)


def normals(n, seed=21):
    u = np.ascontiguousarray(draw_uniforms(seed, np.arange(n))[:, :2])
    out = np.empty((n, 2, LANES), dtype=np.float32)
    run_normals(u, out)
    return u.astype(np.float64), out.astype(np.float64)


def test_normals_follow_from_their_uniforms():
    u, z = normals(20_000)
    radius = np.sqrt(-2 * np.log(u[:, 0]))
    angle = 2 * np.pi * u[:, 1]
    np.testing.assert_allclose(z[:, 0], radius * np.cos(angle), atol=1e-6)
    np.testing.assert_allclose(z[:, 1], radius * np.sin(angle), atol=1e-6)


def test_normals_are_standard_and_independent():
    _, z = normals(40_000)
    n = z.size
    assert abs(z.mean()) < 4 / np.sqrt(n)
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs(stats.skew(z, axis=None)) < 4 * np.sqrt(6 / n)
    assert abs(stats.kurtosis(z, axis=None)) < 4 * np.sqrt(24 / n)
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-4
    columns = z.reshape(40_000, -1)
    assert np.abs(np.corrcoef(columns.T) - np.eye(2 * LANES)).max() < 4.5 / np.sqrt(40_000)
    assert np.abs(np.corrcoef((columns**2).T) - np.eye(2 * LANES)).max() < 4.5 / np.sqrt(40_000)


# --- the kernels of every registered model ---

MODELS = [make_model(name, k) for name in model_names() for k in ((2, 4) if model_class(name).polytomous else (None,))]


@kernel
def run_model(tag, y, eta, par, small, first, curve):
    """Response r of item r: `first` gets terms (3), factored (4), extra terms (3 and the outputs), `curve` two rows."""
    for r in range(y.size):
        e, score = row(eta, (r,)), splat(y[r])
        ll, g, w = call_terms(tag, score, e, (par, r))
        put(first, (r, 0), ll)
        put(first, (r, 1), g)
        put(first, (r, 2), w)
        ll, f, g, w = call_factored(tag, score, e, (par, r))
        put(first, (r, 3), ll)
        put(first, (r, 4), f)
        put(first, (r, 5), g)
        put(first, (r, 6), w)
        ll, g, w = call_extra_terms(tag, score, e, (par, r), small)
        put(first, (r, 7), ll)
        put(first, (r, 8), g)
        put(first, (r, 9), w)
        for m in range(small.shape[0]):
            put(first, (r, 10 + m), row(small, (m,)))
        value, slope = call_curve(tag, e, (par, r))
        put(curve, (r, 0), value)
        put(curve, (r, 1), slope)


def scores(model, n, rng):
    """Scores from the whole support, edges included."""
    if model.n_categories is not None:
        return rng.integers(0, model.n_categories, n).astype(float)
    score = special.expit(rng.normal(0, 3, n))
    score[::7] = 1e-6
    score[3::7] = 1 - 1e-6
    ends = np.array([0.0, model.max_score])
    allowed = ends[~model.bad_scores(ends)]
    if allowed.size:
        score[1::5] = rng.choice(allowed, score[1::5].size)
    return score


def both(model, eta, width, rng):
    """The kernels in lanes and in NumPy, at the same float32 inputs; eta (n, LANES)."""
    n, q = eta.shape[0], len(model.extras)
    mean, sd = np.array(model.prior.mean), np.array(model.prior.sd)
    xi = mean + width * sd * rng.uniform(-1, 1, (n, LANES, mean.size))
    par = np.ascontiguousarray(np.swapaxes(model.kernel_parameters(xi), 1, 2), dtype=np.float32)
    y = model.encode_score(scores(model, n, rng)).astype(np.float32)
    eta = eta.astype(np.float32)
    small = np.zeros((max(n_extra_outputs(q), 1), LANES), dtype=np.float32)
    first = np.zeros((n, 10 + small.shape[0], LANES), dtype=np.float32)
    curve = np.zeros((n, 2, LANES), dtype=np.float32)
    run_model(model.tag, y, eta, par, small, first, curve)

    known = kernels(model.tag)
    wide = [np.asarray(v, dtype=np.float64) for v in (y[:, None] * np.ones(LANES), eta, np.moveaxis(par, 1, 0))]
    out = np.zeros((small.shape[0], n, LANES))
    terms = known.extra_terms(model.tag, *wide, out)
    exact = np.stack([*terms, *out], axis=1)
    exact_curve = np.stack(known.curve(model.tag, *wide[1:]), axis=1)
    return first.astype(np.float64), exact, curve.astype(np.float64), exact_curve


def assert_close(got, exact, tolerance, what):
    error = np.abs(got - exact) / np.maximum(np.abs(exact), 1.0)
    at = np.unravel_index(np.argmax(error), error.shape)
    assert np.isfinite(got).all(), f"{what}: not finite"
    assert error.max() < tolerance, f"{what}: got {got[at]}, exact {exact[at]} at {at}"


RANGES = {"usual": (4.0, 1.0, 2e-5), "wide": (30.0, 2.0, 1e-4), "extreme": (700.0, 2.0, 1e-4)}


@pytest.fixture(params=MODELS, ids=lambda m: f"{m.name}-{m.n_categories}")
def model(request):
    return request.param


@pytest.mark.parametrize("reach", RANGES)
def test_kernels_equal_numpy(model, reach):
    largest, width, tolerance = RANGES[reach]
    rng = np.random.default_rng(5)
    eta = rng.uniform(-largest, largest, (200, LANES))
    eta[:3] = np.array([0.0, largest, -largest])[:, None]
    got, exact, curve, exact_curve = both(model, eta, width, rng)
    for k, what in enumerate(("log-likelihood", "slope", "information")):
        assert_close(got[:, k], exact[:, k], tolerance, f"terms: {what}")
        assert_close(got[:, 7 + k], exact[:, k], tolerance, f"extra terms: {what}")
    f = got[:, 4]
    assert f.min() >= 2.0**-12
    assert f.max() <= 2.0**12
    assert_close(got[:, 3] + np.log(f), exact[:, 0], tolerance, "factored: log-likelihood")
    assert_close(got[:, 5], exact[:, 1], tolerance, "factored: slope")
    assert_close(got[:, 6], exact[:, 2], tolerance, "factored: information")
    for k in range(n_extra_outputs(len(model.extras))):
        assert_close(got[:, 10 + k], exact[:, 3 + k], tolerance, f"extra output {k}")
    assert_close(curve, exact_curve, 1e-6, "curve")
