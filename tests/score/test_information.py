"""Information, SEM and reliability against their definitions."""

import numpy as np
import pytest
from worlds import MODELS, make_bank, people, simulate

from concal.errors import BankError, DataError
from concal.score.information import information, item_information
from concal.score.score import ScoreOptions, score_examinees


@pytest.mark.parametrize(("model", "categories"), [m for m in MODELS if "beta" not in m[0]])
def test_item_information_is_the_expected_squared_gradient(model, categories):
    """Over categories; tests/response/test_bias.py integrates continuous scores."""
    bank = make_bank([(model, categories)], n_items=3)
    group, nodes = bank.items.groups[0], np.array([-4.0, -1.0, 0.5, 1.0, 4.0])
    found = item_information(group.model, group.mean, nodes)
    scores = np.array(group.model.atoms)
    for j in range(3):
        for q, theta in enumerate(nodes):
            xi = group.mean[[j]].repeat(scores.size, axis=0)
            out = group.model.derivatives(scores, np.full(scores.size, theta), xi)
            assert found[j, q] == pytest.approx((np.exp(out.log_likelihood) * out.theta_gradient**2).sum(), rel=1e-9)


def test_test_information_sums_and_bands_cover():
    bank = make_bank([("2pl", None), ("gpcm", 4)], dimensions=2, sd=0.3, n_draws=50)
    found = information(bank.items, bank.abilities, theta=[0.0, 1.0], draws=50)
    assert found.draws == "joint draws"
    assert found.curves.height == 4
    group = bank.items.groups[0]
    each = np.array(
        [item_information(group.model, group.draws[s].astype(float), np.array([1.0])).sum() for s in range(50)]
    )
    row = found.curves.filter((found.curves["dimension"] == "dim0") & (found.curves["theta"] == 1.0)).row(0, named=True)
    assert row["information"] == pytest.approx(each.mean())
    assert row["information_low"] == pytest.approx(np.quantile(each, 0.05))
    assert row["sem"] == pytest.approx((each**-0.5).mean())
    assert row["reliability"] == pytest.approx((1 / (1 + 1 / each)).mean())
    assert found.items.height == 16
    assert (found.items["information_low"] <= found.items["information_high"]).all()


def test_some_items_only():
    bank = make_bank([("2pl", None)], sd=0.1)
    found = information(bank.items, bank.abilities, ids=["g0-01", "g0-03"])
    assert found.tests["n_items"].to_list() == [2]
    assert found.items["item_id"].to_list() == ["g0-01", "g0-03"]
    with pytest.raises(BankError, match="'nope'"):
        information(bank.items, bank.abilities, ids=["nope"])
    with pytest.raises(DataError, match="finite"):
        information(bank.items, bank.abilities, theta=[np.nan])


def test_marginal_reliability_is_that_of_scores():
    """The squared correlation of ML-like scores with the truth is about sigma^2 / (sigma^2 + mean error variance)."""
    bank = make_bank([("2pl", None)], n_items=60)
    theta, answered = simulate(bank, 4000, 60)
    eap = score_examinees(bank, people(answered), ScoreOptions(items="mean"))["theta_dim0"].to_numpy()
    found = information(bank.items, bank.abilities, draws=2).tests["reliability"][0]
    assert np.corrcoef(eap, theta[:, 0])[0, 1] ** 2 == pytest.approx(found, abs=0.03)
