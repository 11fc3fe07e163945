"""EAP scores of the classics at their published item parameters, against sums over response patterns by hand.

The parameters are those of R mirt's own tests (see published.json). With them the mean of the EAPs is near zero and the
empirical reliability agrees with the posterior variances; the scores themselves are checked pattern by pattern against
a direct 601-point sum in NumPy.
"""

import json

import numpy as np
import polars as pl
import pytest

from concal.response import make_model
from concal.score.items import GroupItems, ScoringItems
from concal.score.prior import Abilities, Population
from concal.score.responses import read_examinees
from concal.score.score import ScoreOptions, ScoringBank, score_examinees
from concal.spec import Spec

pytestmark = pytest.mark.real


def scored(data, items, model, xi, spec):
    ids = tuple(items)
    group = GroupItems("g", 0, model, 0, xi, np.tile(1e-12 * np.eye(xi.shape[1]), (len(ids), 1, 1)), None)
    abilities = Abilities.of_links(
        [Population("P", None, 1, np.zeros(1), np.ones(1))], np.ones((1, 1, 1)), np.ones((1, 1)), np.zeros((1, 1))
    )
    bank = ScoringBank(ScoringItems(("trait",), (group,), ids, 1), abilities, spec)
    wide = data.select(pl.Series("person_id", [f"{i:05d}" for i in range(data.height)]), *items)
    people = read_examinees(wide, bank.items, spec, wide=True)
    return score_examinees(bank, people, ScoreOptions(items="mean"))


def by_hand(log_p, scores):
    """EAP and SD of every row from log-probabilities (items, categories, nodes)."""
    nodes = np.linspace(-9, 9, 601)
    ll = sum(log_p[j][scores[:, j]] for j in range(scores.shape[1]))
    w = np.exp(ll - 0.5 * nodes**2)
    w /= w.sum(axis=1, keepdims=True)
    mean = w @ nodes
    return mean, np.sqrt(w @ nodes**2 - mean**2)


@pytest.mark.parametrize(("name", "key"), [("lsat7", "lsat7_2pl_ml"), ("lsat6", "lsat6_2pl_ml")])
def test_lsat(shared_data, name, key):
    published = json.loads((shared_data / "published.json").read_text())[key]["recomputed_here"]
    data = pl.read_csv(shared_data / "classics" / f"{name}.csv").pivot("item", index="examinee", values="score")
    items = published["items"]
    a, d = np.array(published["a"]), np.array(published["d"])
    spec = Spec.parse({"bank": {"dimensions": ["trait"]}, "groups": {"g": {"model": "2pl", "dimension": "trait"}}})
    table = scored(data, items, make_model("2pl"), np.column_stack([-d / a, np.log(a)]), spec)
    nodes = np.linspace(-9, 9, 601)
    eta = a[:, None] * nodes + d[:, None]
    log_p = np.stack([-np.logaddexp(0, eta), -np.logaddexp(0, -eta)], axis=1)
    mean, sd = by_hand(log_p, data.select(items).to_numpy().astype(int))
    np.testing.assert_allclose(table["theta_trait"], mean, atol=1e-6)
    np.testing.assert_allclose(table["se_trait"], sd, atol=1e-6)
    eap = table["theta_trait"].to_numpy()
    # at the maximum of the likelihood the population is reproduced: mean 0, and variance of EAPs plus mean error 1
    assert abs(eap.mean()) < 0.01
    assert eap.var() + (table["se_trait"].to_numpy() ** 2).mean() == pytest.approx(1.0, abs=0.01)


def test_science(shared_data):
    published = json.loads((shared_data / "published.json").read_text())["science_graded_ml"]
    data = pl.read_csv(shared_data / "classics" / "science.csv").pivot("item", index="examinee", values="score")
    items = published["items"]
    a, d = np.array(published["a"]), np.array(published["d"])  # P(X >= k) = logistic(a theta + d_k)
    thresholds = -d  # logistic(eta - c_k), eta = a (theta - location), c centred
    location = thresholds.mean(axis=1) / a
    gaps = np.log(np.diff(thresholds, axis=1))
    xi = np.column_stack([location, np.log(a), gaps])
    group = {"model": "grm", "categories": 4, "dimension": "trait"}
    spec = Spec.parse({"bank": {"dimensions": ["trait"]}, "groups": {"g": group}})
    scores = data.select(items).to_numpy().astype(int)
    table = scored(data.with_columns(pl.col(items) - scores.min()), items, make_model("grm", 4), xi, spec)
    nodes = np.linspace(-9, 9, 601)
    upper = 1 / (1 + np.exp(-(a[:, None, None] * nodes + d[:, :, None])))
    full = np.concatenate([np.ones((4, 1, 601)), upper, np.zeros((4, 1, 601))], axis=1)
    mean, sd = by_hand(np.log(full[:, :-1] - full[:, 1:]), scores - scores.min())
    np.testing.assert_allclose(table["theta_trait"], mean, atol=1e-6)
    np.testing.assert_allclose(table["se_trait"], sd, atol=1e-6)
    assert abs(table["theta_trait"].mean()) < 0.01
