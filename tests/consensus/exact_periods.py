"""One item in small periods whose marginal likelihood is known exactly: abilities integrated on a grid.

A period's examinees, N(0, 1) on its own metric, answer a dozen items with *known* parameters and the item in question.
Its marginal log-likelihood at any phi is then a sum over examinees of one-dimensional integrals, and its gradient in
phi is exact too. Posteriors are summed over quasi-random points of an importance distribution; a factor and the exact
likelihood are always compared at the same points, so that next to nothing of the points' noise is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from scipy import optimize, special, stats

from concal import metric
from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.calibration.others import told_by_others
from concal.calibration.result import GroupDraws
from concal.calibration.tables import response_table
from concal.consensus.factors.gaussians import finish, from_gradients
from concal.consensus.factors.remainder import Tables, fit_remainder, kernel_tables, table_of
from concal.consensus.joint.arrange import GroupTables
from concal.data.period import GroupData, PeriodData
from concal.response.registry import kernels as model_kernels

THETA = np.linspace(-4.2, 4.2, 36)
OTHERS = 12
POINTS = 1024


@dataclass(frozen=True)
class ExactPeriod:
    """The item's responses: scores (unique, and which each examinee gave) and everybody's ability without them."""

    model: object
    score: np.ndarray
    which: np.ndarray
    cavity: np.ndarray  # (examinees, THETA), rows sum to one
    group: GroupDraws  # the item's averages, table and draws, as the engine would return them
    A: float
    B: float

    def log_likelihood(self, phi_ref):
        """At points phi (n, p) of the reference metric."""
        return marginal(self, metric.xi_of(metric.own_phi(phi_ref, self.A, self.B)))


def at_nodes(model, scores, xi):
    """For every score: log-likelihood and its slope in eta at all abilities, (n, THETA) each, for items xi (n, p)."""
    if model.name in ("beta", "ordered_beta"):
        yield from beta_at_nodes(scores, xi)
        return
    par = np.moveaxis(model.kernel_parameters(xi), -1, 0)[:, :, None]
    eta = par[0] * (THETA - par[1])
    for y in scores:
        yield model_kernels(model.tag).log_terms(model.tag, np.full((1, 1), float(y)), eta, par)[:2]


def beta_at_nodes(scores, xi):
    """The same for (ordered) beta, written out: its gamma functions do not depend on the score."""
    eta = np.exp(xi[:, 1:2]) * (THETA - xi[:, :1])
    phi, mu = np.exp(xi[:, 2:3]), special.expit(eta)
    p, q = mu * phi, special.expit(-eta) * phi
    turn = mu * q  # d p / d eta
    base = special.gammaln(phi) - special.gammaln(p) - special.gammaln(q)
    slope = turn * (special.digamma(q) - special.digamma(p))
    above = below = None
    if xi.shape[1] > 3:
        above, below = eta - xi[:, 3:4], eta - xi[:, 3:4] - np.exp(xi[:, 4:5])  # k_0, k_1
        base = base + special.log_expit(above) + special.log_expit(-below) + np.log1p(-np.exp(-np.exp(xi[:, 4:5])))
        slope = slope + special.expit(-above) - special.expit(below)
    for y in scores:
        if y == 0.0:
            yield special.log_expit(-above), -special.expit(above)
        elif y == 1.0:
            yield special.log_expit(below), special.expit(-below)
        else:
            yield base + (p - 1) * np.log(y) + (q - 1) * np.log1p(-y), slope + turn * special.logit(y)


def marginal(period, xi):
    """Marginal log-likelihood of the item at xi (n, p) on the period's own metric."""
    return with_slope(period, xi)[0]


def with_slope(period, xi):
    """The same with its derivatives in c and a: means over everybody's ability given the response, and one at once."""
    n = xi.shape[0]
    value, slope = np.zeros(n), np.zeros((n, 2))
    for k, (ll, g) in enumerate(at_nodes(period.model, period.score, xi)):
        top = ll.max(axis=1, keepdims=True)
        likelihood, mine = np.exp(ll - top), period.cavity[period.which == k].T
        total = likelihood @ mine
        value += (np.log(total) + top).sum(axis=1)
        slope[:, 0] += ((likelihood * g) @ mine / total).sum(axis=1)
        slope[:, 1] += ((likelihood * g * THETA) @ mine / total).sum(axis=1)
    return value, slope


def gradient(period, xi, h=1e-4):
    """Gradient in phi: in the extras by differences."""
    out = np.empty_like(xi)
    out[:, :2] = with_slope(period, xi)[1]
    for u in range(2, xi.shape[1]):
        step = h * np.eye(xi.shape[1])[u]
        out[:, u] = (marginal(period, xi + step) - marginal(period, xi - step)) / (2 * h)
    return out


def prior_of(model):
    return np.array(model.prior.mean), np.diag(np.array(model.prior.sd) ** 2)


def log_prior(xi, mean, sigma):
    r = xi - mean
    return -0.5 * (r * np.linalg.solve(sigma, r.T).T).sum(axis=1)


def importance_points(log_density, start, scale, n=POINTS, seed=7):
    """Points (n, p) around the mode from a wide t distribution, and the log of their density."""
    p = start.size

    def numeric(x, h=1e-3):
        steps = np.concatenate([np.zeros((1, p)), h * scale * np.eye(p), -h * scale * np.eye(p)])
        values = log_density(x + steps)
        slope = (values[1 : 1 + p] - values[1 + p :]) / (2 * h * scale)
        return -values[0], -slope

    mode = optimize.minimize(numeric, start, jac=True, method="BFGS", options={"gtol": 1e-3}).x
    h = 0.1 * scale
    pairs = [(a, b) for a in range(p) for b in range(a + 1)]
    signs, eye = ((1, 1), (1, -1), (-1, 1), (-1, -1)), np.eye(p)
    corners = np.array([mode + s * h * eye[a] + t * h * eye[b] for a, b in pairs for s, t in signs])
    values = log_density(corners).reshape(-1, 4)
    curvature = np.zeros((p, p))
    for (a, b), v in zip(pairs, values, strict=True):
        curvature[a, b] = curvature[b, a] = -(v[0] - v[1] - v[2] + v[3]) / (4 * h[a] * h[b])
    values, vectors = np.linalg.eigh(curvature * np.outer(scale, scale))
    root = scale[:, None] * vectors / np.sqrt(np.maximum(values, 0.5))
    degrees = 7.0
    u = np.clip(stats.qmc.Sobol(p + 1, seed=seed).random(n), 1e-9, 1 - 1e-9)
    z = stats.norm.ppf(u[:, :p]) / np.sqrt(stats.chi2.ppf(u[:, p], degrees) / degrees)[:, None]
    z *= 1.2
    return mode + z @ root.T, -0.5 * (degrees + p) * np.log1p((z**2).sum(axis=1) / 1.44 / degrees)


def weights_of(log_density, log_proposal):
    w = np.exp((log_density - log_proposal) - (log_density - log_proposal).max())
    return w / w.sum()


def moments_of(weight, xi):
    mean = weight @ xi
    z = xi - mean
    return mean, np.einsum("n,na,nb->ab", weight, z, z)


def exact_period(model, truth, n, seed, A=1.0, B=0.0):
    """A period of n examinees; `truth` (p,) is the item on the reference metric."""
    rng = np.random.default_rng(seed)
    mean, sigma = prior_of(model)
    p = truth.size
    others = mean + 0.7 * rng.normal(size=(OTHERS, p)) * np.sqrt(np.diag(sigma))
    back = metric.invert(metric.Constants(np.float64(A), np.float64(B)))
    items = np.concatenate([others, metric.move_items(truth, back.A, back.B)[None]])
    theta = rng.normal(size=n)
    person, item = np.repeat(np.arange(n), OTHERS + 1), np.tile(np.arange(OTHERS + 1), n)
    score = rounded(model, model.simulate(theta[person], items[item], rng))
    cavity = -0.5 * THETA**2 + np.zeros((n, 1))
    for j in range(OTHERS):
        values, which = np.unique(score[item == j], return_inverse=True)
        cavity += np.array([ll[0] for ll, _ in at_nodes(model, values, others[j][None])])[which]
    cavity = np.exp(cavity - cavity.max(axis=1, keepdims=True))
    cavity /= cavity.sum(axis=1, keepdims=True)
    values, which = np.unique(score[item == OTHERS], return_inverse=True)
    period = ExactPeriod(model, values, which, cavity, None, A, B)
    data = GroupData(
        "g", "reading", model, tuple(f"i{j}" for j in range(OTHERS + 1)), ("1",), np.ones((OTHERS + 1, 1)),
        person.astype(np.int32), item.astype(np.int32), score,
    )  # fmt: skip
    return replace(period, group=as_the_engine_would(period, data, items, n))


def rounded(model, score):
    """Continuous scores in steps of 1/16: few different ones, so that sums are cheap."""
    if model.n_categories is not None:
        return score
    inside = (score > 0) & (score < 1)
    return np.where(inside, np.clip(np.round(score * 16) / 16, 0.03, 0.97), score)


def as_the_engine_would(period, data, items, n):
    """Averages over the period's posterior of phi, l and their products (no noise), its table, and some draws."""
    model, p = period.model, items.shape[1]
    mean, sigma = prior_of(model)
    target = lambda xi: marginal(period, xi) + log_prior(xi, mean, sigma)  # noqa: E731
    xi, log_proposal = importance_points(target, items[-1], np.sqrt(np.diag(sigma)))
    weight = weights_of(target(xi), log_proposal)
    phi, l = metric.phi_of(xi), gradient(period, xi)
    products = [np.einsum("n,na,nb->ab", weight, phi, v).ravel() for v in (phi, l)]
    centre = weight @ xi
    ll = np.array([value[0] for value, _ in at_nodes(model, period.score, centre[None])])
    ability = period.cavity * np.exp(ll - ll.max(axis=1, keepdims=True))[period.which]
    ability /= ability.sum(axis=1, keepdims=True)
    theta = ability @ THETA
    sd = np.sqrt((ability * (THETA - theta[:, None]) ** 2).sum(axis=1))
    ids = pl.Series("person_id", [f"p{i}" for i in range(n)])
    layout = lay_out(PeriodData("q", ("reading",), ids, {"g": data}, ("q",), np.zeros(n, np.int32)))
    known = np.concatenate([items[:-1], centre[None]])  # which abilities were computed with
    told = told_by_others(layout, {"g": known[None]}, theta[:, None], sd[:, None])
    table = response_table(layout.groups[0], told["g"])
    places = np.searchsorted(np.cumsum(weight), (np.arange(1600) + 0.5) / 1600)
    draws = xi[np.minimum(places, xi.shape[0] - 1)]
    last = {name: getattr(table, name)[-1:] for name in table._fields}
    return GroupDraws(
        name="g", dimension="reading", model=model, item_ids=("i",), features=("1",), X=np.ones((1, 1)),
        xi=draws.reshape(8, 200, 1, p).astype(np.float32), beta=np.broadcast_to(mean, (8, 200, 1, p)).copy(),
        sigma=np.broadcast_to(sigma, (8, 200, p, p)).copy(), n_responses=np.array([n]), rhat=np.ones((1, p)),
        ess_bulk=np.full((1, p), 1600.0), ess_tail=np.full((1, p), 1600.0),
        moments=np.concatenate([weight @ phi, weight @ l, *products])[None], **last,
    )  # fmt: skip


@dataclass(frozen=True)
class Factor:
    """Both levels of the item's factor in one period, as functions of phi on the reference metric."""

    period: ExactPeriod
    Q: np.ndarray
    h: np.ndarray
    dQ: np.ndarray
    dh: np.ndarray

    def gaussian(self, phi_ref):
        phi = metric.own_phi(phi_ref, self.period.A, self.period.B)
        return phi @ self.h - 0.5 * np.einsum("na,ab,nb->n", phi, self.Q, phi)

    def table(self, phi_ref):
        phi = metric.own_phi(phi_ref, self.period.A, self.period.B)
        return (
            table_value(self.period.group, metric.xi_of(phi))
            + phi @ self.dh
            - 0.5 * np.einsum("na,ab,nb->n", phi, self.dQ, phi)
        )


def factor_of(period):
    group = period.group
    _, sigma = prior_of(period.model)
    Q, l, mean, covariance = from_gradients(group, np.zeros((2, 2)))
    dQ, dh = fit_remainder(group, table_of(group), Q, l, mean, covariance)
    Q, h = finish(Q, l, mean, sigma, np.array([True]))
    return Factor(period, Q[0], h[0], dQ[0], dh[0])


def table_value(group, xi):
    """l_T at points xi (n, p), n a multiple of the number of lanes."""
    model, (n, p) = group.model, xi.shape
    tables = tuple(np.repeat(t, n // LANES, axis=0) for t in kernel_tables(table_of(group)))
    items = xi.reshape(-1, LANES, p)
    par = np.ascontiguousarray(np.moveaxis(model.kernel_parameters(items), 2, 1), dtype=np.float32)
    acc = np.empty((n // LANES, 1 + p + p * (p + 1) // 2, LANES))
    if model.extras:
        jacobian = np.ascontiguousarray(np.moveaxis(model.extras_jacobian(items), 1, 3))
        kernels.table_pass_extras(model.tag, *tables, par, jacobian, acc, 0, n // LANES)
    else:
        kernels.table_pass(model.tag, *tables, par, acc, 0, n // LANES)
    return acc[:, 0].ravel()


def arranged(factors):
    """The item's factors of all periods as the joint method reads them."""
    groups = [f.period.group for f in factors]
    tables = [kernel_tables(table_of(g)) for g in groups]
    M = len(factors)
    return GroupTables(
        np.zeros(1, np.intp), np.array([0, M]), np.zeros(M, np.int32), np.arange(M, dtype=np.int32),
        Tables(*(np.concatenate(column) for column in zip(*tables, strict=True))),
        np.stack([f.dQ for f in factors]), np.stack([f.dh for f in factors]),
    )  # fmt: skip
