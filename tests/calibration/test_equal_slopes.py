"""One slope for all items of a group: exactly in every draw, and with the posterior the model has."""

import numpy as np
import polars as pl
import pytest

from concal.bank.store.codec import decode_model, encode_model
from concal.calibration import priors
from concal.calibration.period import calibrate
from concal.errors import SpecError
from concal.response import make_model
from concal.spec import Spec

ITEMS, PERSONS, TAU = 5, 500, 0.01
SCALE = np.array([1.0])  # half-t, of d


def test_names_and_options():
    assert make_model("1pl") == make_model("2pl", slopes="equal") != make_model("2pl")
    assert make_model("gpcm", 4, "equal").shared == (1,)
    assert decode_model(encode_model(make_model("grm", 3, "equal"))) == make_model("grm", 3, "equal")
    assert [make_model(n, k).kind for n, k in (("rasch", None), ("pcm", 3), ("rsm", 3))] == ["1pl", "pcm", "rsm"]
    assert make_model("grm", 3, "equal").kind == "grm with equal slopes"
    with pytest.raises(SpecError, match="response model '1pl' has equal slopes"):
        make_model("1pl", slopes="free")
    assert make_model("rasch") == make_model("1pl")
    assert make_model("pcm", 3) == make_model("gpcm", 3, "equal")
    assert make_model("rsm", 4) == make_model("gpcm", 4, "equal", "equal") != make_model("pcm", 4)
    assert make_model("rsm", 4).shared == (1, 2, 3)
    assert make_model("grm", 4, steps="equal").shared == (2, 3)
    assert decode_model(encode_model(make_model("rsm", 4))) == make_model("rsm", 4)
    with pytest.raises(SpecError, match="response model 'rsm' has equal steps"):
        make_model("rsm", 4, steps="free")
    with pytest.raises(SpecError, match="response model '2pl' has no steps"):
        make_model("2pl", steps="equal")


@pytest.fixture(scope="module")
def answers():
    """Five items of one slope, everybody answers all."""
    rng = np.random.default_rng(8)
    place = np.linspace(-1.5, 1.0, ITEMS)
    right = rng.random((PERSONS, ITEMS)) < 1 / (1 + np.exp(1.3 * (place - rng.standard_normal((PERSONS, 1)))))
    return right.astype(float)


def reference_posterior(right, steps=30_000, seed=1):
    """Draws (d, log a) by a plain random walk on the marginal posterior, abilities summed over a grid."""
    patterns, counts = np.unique(right, axis=0, return_counts=True)
    theta = np.linspace(-5, 5, 41)
    weight = np.exp(-0.5 * theta**2)
    weight /= weight.sum()

    def log_posterior(x):
        d, log_a, mu, log_sd = x[:ITEMS], x[ITEMS], x[ITEMS + 1], x[ITEMS + 2]
        eta = np.exp(log_a) * (theta[:, None] - d)
        p1, p0 = -np.logaddexp(0, -eta), -np.logaddexp(0, eta)
        by_pattern = patterns @ p1.T + (1 - patterns) @ p0.T
        value = counts @ np.log(np.exp(by_pattern) @ weight)
        value += -0.5 * (((d - mu) / np.exp(log_sd)) ** 2).sum() - ITEMS * log_sd
        value += -0.5 * TAU * (mu**2 + (log_a / 0.3) ** 2)
        return value + priors.log_sigma_alone(2 * log_sd, np.exp(-2 * log_sd)[None], SCALE) + 2 * log_sd

    rng = np.random.default_rng(seed)
    x = np.concatenate([np.linspace(-1.5, 1.0, ITEMS), [0.2, 0.0, 0.0]])
    value, kept = log_posterior(x), []
    scale = np.array([0.12] * ITEMS + [0.09, 0.5, 0.4]) * 0.8
    for step in range(steps):
        proposal = x + scale * rng.standard_normal(x.size) * rng.choice([0.3, 1.0])
        new = log_posterior(proposal)
        if np.log(rng.random()) < new - value:
            x, value = proposal, new
        if step > steps // 10:
            kept.append(x[: ITEMS + 1])
    return np.array(kept)


def test_the_posterior_is_that_of_a_reference_sampler(answers):
    ids = [f"i{j}" for j in range(ITEMS)]
    table = pl.DataFrame(answers, schema=ids).insert_column(0, pl.Series("p", [f"p{i}" for i in range(PERSONS)]))
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["x"]},
            "groups": {"g": {"model": "1pl", "dimension": "x"}},
            "calibration": {"max_sweeps": 1500, "min_ess": 150, "max_rhat": 1.06, "tau": TAU},
        }
    )
    found = calibrate(table, pl.DataFrame({"item_id": ids}), spec, seed=3, wide=True)
    assert found.convergence.converged
    xi = found.groups["g"].flat("xi")
    assert np.ptp(xi[:, :, 1], axis=1).max() == 0.0
    mine, theirs = np.column_stack([xi[:, :, 0], xi[:, 0, 1]]), reference_posterior(answers)
    sd = theirs.std(axis=0)
    assert np.abs((mine.mean(axis=0) - theirs.mean(axis=0)) / sd).max() < 0.25
    np.testing.assert_allclose(mine.std(axis=0), sd, rtol=0.15)


def rated(model, categories, persons, seed, n_items=12):
    """A rating scale that follows its model: everybody answers all items."""
    rng = np.random.default_rng(seed)
    made = make_model(model, categories, "equal", "equal")
    xi = np.tile(np.array(made.prior.mean), (n_items, 1))
    xi[:, 0], xi[:, 1] = rng.normal(0.0, 0.8, n_items), 0.3
    theta, item = np.repeat(rng.standard_normal(persons), n_items), np.tile(np.arange(n_items), persons)
    score = made.simulate(theta, xi[item], rng).astype(int)
    who = [f"p{i}" for i in np.repeat(np.arange(persons), n_items)]
    return pl.DataFrame({"person_id": who, "item_id": [f"i{j}" for j in item], "score": score})


@pytest.mark.parametrize(("model", "categories", "persons"), [("gpcm", 4, 400), ("grm", 4, 400), ("grm", 5, 1000)])
def test_no_chain_of_a_rating_scale_stays_where_it_began(model, categories, persons):
    table = rated(model, categories, persons, seed=2)
    group = {"model": model, "dimension": "x", "categories": categories, "slopes": "equal", "steps": "equal"}
    spec = Spec.parse({"bank": {"dimensions": ["x"]}, "groups": {"g": group}, "calibration": {"max_sweeps": 300}})
    found = calibrate(table, table.select("item_id").unique(maintain_order=True), spec, seed=4)
    draws = found.groups["g"]
    for c in draws.model.shared:
        assert min(np.unique(chain[:, 0, c]).size for chain in draws.xi) > 20
    assert found.convergence.max_rhat_population < 1.2
