"""Small banks with known items, and the slow, obvious reference every kernel of scoring must agree with."""

from __future__ import annotations

import itertools

import numpy as np

from concal.response import make_model
from concal.score.items import GroupItems, ScoringItems
from concal.score.prior import Abilities, Population
from concal.score.responses import Examinees
from concal.score.rows import Answered
from concal.score.score import ScoringBank
from concal.spec import Spec

MODELS = [("2pl", None), ("3pl", None), ("gpcm", 4), ("grm", 3), ("beta", None), ("ordered_beta", None)]


def make_bank(models, n_items=8, dimensions=1, seed=1, sd=0.0, n_draws=0, wobble=0.0, reporting=None, correlation=0.5):
    """Groups of items, one model each, dimensions in turn; `sd` and `n_draws` say how well they are known.

    `wobble` moves all items and priors of a draw by a common change of metric with that SD of log A and B.
    """
    rng = np.random.default_rng(seed)
    names = tuple(f"dim{k}" for k in range(dimensions))
    groups, ids, specs = [], [], {}
    links = np.zeros((n_draws, 1, dimensions, 2))
    links[:, 0] = wobble * rng.standard_normal((n_draws, dimensions, 2))
    for k, (name, categories) in enumerate(models):
        model = make_model(name, categories)
        prior, dim = model.prior, k % dimensions
        mean = np.array(prior.mean) + np.array(prior.sd) * rng.standard_normal((n_items, len(prior.mean)))
        covariance = np.broadcast_to(
            np.diag((sd * np.array(prior.sd)) ** 2 + 1e-12), (n_items, mean.shape[1], mean.shape[1])
        )
        draws = None
        if n_draws:
            noise = sd * np.array(prior.sd) * rng.standard_normal((n_draws, *mean.shape))
            draws = mean + noise
            log_A, B = links[:, 0, dim, 0], links[:, 0, dim, 1]
            draws[:, :, 0] = np.exp(log_A)[:, None] * draws[:, :, 0] + B[:, None]
            draws[:, :, 1] -= log_A[:, None]
            draws = draws.astype(np.float32)
        group = f"g{k}"
        groups.append(GroupItems(group, dim, model, len(ids), mean, covariance.copy(), draws))
        ids += [f"{group}-{j:02d}" for j in range(n_items)]
        specs[group] = {"model": name, "dimension": names[dim], **({"categories": categories} if categories else {})}
    spec = Spec.parse({"bank": {"dimensions": list(names)}, "groups": specs, "reporting": reporting or {}})
    R = np.full((1, dimensions, dimensions), correlation)
    R[0, range(dimensions), range(dimensions)] = 1.0
    one, zero = np.ones((1, dimensions)), np.zeros((1, dimensions))
    whole = [Population("P1", None, 1000, zero[0], one[0])]
    abilities = Abilities.of_links(whole, R, one, zero, links if n_draws else None)
    return ScoringBank(ScoringItems(names, tuple(groups), tuple(ids), 7), abilities, spec)


def simulate(bank, n_persons, per_group, seed=2, theta=None, xi=None):
    """Examinees of the first period's population, each with a random set of items of every group."""
    rng = np.random.default_rng(seed)
    D = len(bank.items.dimensions)
    if theta is None:
        theta = rng.multivariate_normal(bank.abilities.mean[0], bank.abilities.covariance[0], n_persons)
    item, score, person = [], [], []
    for k, g in enumerate(bank.items.groups):
        n = min(per_group, g.n_items)
        which = np.argsort(rng.random((n_persons, g.n_items)), axis=1)[:, :n]
        at = np.repeat(np.arange(n_persons), n)
        values = g.mean if xi is None else xi[k]
        person.append(at)
        item.append(g.first + which.ravel())
        score.append(g.model.simulate(theta[at, g.dim], values[which.ravel()], rng))
    person, item, score = (np.concatenate(x) for x in (person, item, score))
    order = np.lexsort((item, person))
    start = np.concatenate([[0], np.cumsum(np.bincount(person, minlength=n_persons))])
    assert theta.shape[1] == D
    return theta, Answered(start, item[order].astype(np.int32), score[order])


def people(answered, prior=None):
    import polars as pl

    ids = pl.Series("person_id", [f"p{i:06d}" for i in range(answered.n_persons)])
    return Examinees(ids, answered, prior)


def log_likelihood(bank, item, score, theta, xi=None):
    """Of one examinee's responses at abilities theta (nodes, D), item by item through the models' NumPy code."""
    total = np.zeros(theta.shape[0])
    for j, y in zip(item, score, strict=True):
        k, g = next((k, g) for k, g in enumerate(bank.items.groups) if g.first <= j < g.first + g.n_items)
        values = (g.mean if xi is None else xi[k])[j - g.first]
        n = theta.shape[0]
        total += g.model.log_likelihood(np.full(n, y), theta[:, g.dim], np.tile(values, (n, 1)))
    return total


def brute_force(bank, answered, person, xi=None, mean=None, covariance=None, per_axis=400, centre=None, width=None):
    """Posterior mean and covariance on a dense grid in float64."""
    D = len(bank.items.dimensions)
    mean = bank.abilities.mean[0] if mean is None else mean
    covariance = bank.abilities.covariance[0] if covariance is None else covariance
    sd = np.sqrt(np.diag(covariance))
    centre = mean if centre is None else centre
    width = 8 * sd if width is None else width
    axes = [np.linspace(centre[k] - width[k], centre[k] + width[k], per_axis) for k in range(D)]
    theta = np.array(list(itertools.product(*axes))) if D > 1 else axes[0][:, None]
    a, b = answered.start[person], answered.start[person + 1]
    ll = log_likelihood(bank, answered.item[a:b], answered.score[a:b], theta, xi)
    off = theta - mean
    log_p = ll - 0.5 * np.einsum("nk,kl,nl->n", off, np.linalg.inv(covariance), off)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    m = p @ theta
    return m, np.einsum("n,nk,nl->kl", p, theta - m, theta - m)
