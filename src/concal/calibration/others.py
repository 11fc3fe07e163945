r"""What an examinee's *other* responses say of the ability: its posterior without one response, for every response.

Of an examinee's posterior in one dimension the sampler gives mean m and SD s, whatever its shape. What else is known of
it is put together at nodes :math:`\theta_q = m + s x_q`: the log-likelihoods l of all his responses in the dimension,
and for all the rest (population, other dimensions, doubt about items) a normal message, chosen such that mean and SD
are m and s. Then one response is left out,

.. math:: \log f_q = \textstyle\sum_r l_{rq} + \eta_1 x_q - \tfrac12 \eta_2 x_q^2, \qquad
          \log f_{-r,q} = \log f_q - l_{rq} .

The shape counts: with few 3pl responses an ability's posterior is skewed, and a response taken out of a normal one
leaves who was wrong .011 SD too high beside who was right, be the items known exactly (here by less than .0001).

They are not. By Fisher's identity the slope of a posterior in the ability is the mean of the responses' slopes over
what the items may be. So

.. math:: l_r(\theta) = E_\xi \log p(y_r \mid \theta, \xi) ,

over points that have the mean and the covariance of the item's posterior (`item_points`). In tests of six 3pl responses
to items with 225 responses each a normal posterior and items at their posterior means left who was wrong .037 SD too
high beside who was right (against mixtures over the sampler's draws), which is enough to see one item in eight fall
with the ability at the 5 % level; with the shape it was .031, with the points as well .008. Items of beta and
ordered_beta were known well enough for the points to make no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import hadamard

from concal.calibration.kernels import LANES, node_log_likelihoods
from concal.calibration.layout import GroupLayout, Layout, runs
from concal.calibration.totals import total_of_runs

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
NODES = np.linspace(-5.6, 5.6, 15)
"""In posterior SDs. At equal distances of .8 sums are as good as integrals; the range is for abilities that are known
much less without a response."""
MOST = 0.9
"""Largest share of what is known about an examinee that one response is allowed to have told."""
LEAST = 0.02
"""Least precision of the message, in units of the posterior's: sampled SDs have errors."""
ROUNDS = 30
CLOSE = 1e-4
"""Mean and variance, in posterior SDs, to which the message is found."""
LONGEST = 1.5
_FEWEST = 4  # parameters for which points are made: eight points, one in every lane
_AT_A_TIME = 50_000  # responses: 6 MB of nodes, and a few arrays like it
_ITEMS = 1000  # whose draws are squared together


class Told(NamedTuple):
    """Mean and SD of the ability without the response itself, (responses,) in the order of items."""

    mean: npt.NDArray[np.float32]
    sd: npt.NDArray[np.float32]


def item_points(draws: npt.NDArray[np.floating]) -> Array:
    r"""Points (n, items, p) with the mean, the covariance and no skewness of draws (chain, draw, items, p).

    With signs h from a Hadamard matrix and its mirror image, :math:`\xi_k = \bar\xi + L h_k`, :math:`LL' = \Sigma`.
    """
    _, _, n_items, p = draws.shape
    half = 1 << (max(p, _FEWEST) - 1).bit_length()
    signs = np.vstack([hadamard(half), -hadamard(half)])[:, :p].astype(np.float64)
    points = np.empty((signs.shape[0], n_items, p))
    for lo in range(0, n_items, _ITEMS):
        some = draws[:, :, lo : lo + _ITEMS].astype(np.float64)
        mean = some.mean(axis=(0, 1))
        away = some - mean
        covariance = np.einsum("csja,csjb->jab", away, away) / (away.shape[0] * away.shape[1])
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        points[:, lo : lo + _ITEMS] = mean + np.einsum("jab,kb->kja", root, signs)
    return points


def told_by_others(layout: Layout, items: Mapping[str, Array], theta_mean: Array, theta_sd: Array) -> dict[str, Told]:
    """Of every response of every group.

    Parameters
    ----------
    items : dict of group -> (points, items, p)
        Points of what is known of the items, see `item_points`; one point where they are known.
    theta_mean, theta_sd : (persons, dimensions)
        Posterior means and SDs of the examinees.
    """
    told = {g.name: Told(*np.empty((2, g.person_item.size), np.float32)) for g in layout.groups}
    for dim in range(layout.D):
        groups = [g for g in layout.groups if g.dim == dim]
        turns = [g.item_start[:-1].copy() for g in groups]
        par = [_kernel_parameters(g, items[g.name]) for g in groups]
        mean = np.ascontiguousarray(theta_mean[:, dim], dtype=np.float64)
        sd = np.maximum(theta_sd[:, dim], np.finfo(np.float32).tiny).astype(np.float64)
        for lo, hi in runs(np.sum([g.person_start for g in groups], axis=0), _AT_A_TIME, _AT_A_TIME):
            parts = [
                _at_nodes(g, *at, mean, sd, lo, hi) for g, at in zip(groups, zip(par, turns, strict=True), strict=True)
            ]
            whole = np.zeros((hi - lo, NODES.size))
            for person, ll, _ in parts:
                whole += total_of_runs(person, ll, hi - lo)
            whole += _message(whole)
            m, s = _moments(whole)
            for g, (person, ll, place) in zip(groups, parts, strict=True):
                without = _moments(whole[person] - ll)
                shift, ratio = without[0] - m[person], without[1] / s[person]
                ratio = np.clip(ratio, (1.0 + MOST) ** -0.5, (1.0 - MOST) ** -0.5)
                told[g.name].mean[place] = mean[lo + person] + sd[lo + person] * shift
                told[g.name].sd[place] = sd[lo + person] * ratio
    return told


def _kernel_parameters(g: GroupLayout, points: Array) -> npt.NDArray[np.float32]:
    """Points in lanes, (items * blocks, parameters, LANES)."""
    n = points.shape[0]
    par = g.model.kernel_parameters(np.tile(points, (np.lcm(n, LANES) // n, 1, 1)))
    lanes = par.reshape(-1, LANES, *par.shape[1:]).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(lanes, dtype=np.float32).reshape(-1, *lanes.shape[2:])


def _at_nodes(
    g: GroupLayout, par: npt.NDArray[np.float32], turn: Index, mean: Array, sd: Array, lo: int, hi: int
) -> tuple[npt.NDArray[np.intp], Array, Index]:
    """Of the responses of examinees lo..hi: examinee (counted from lo), l at the nodes, place in the order of items."""
    counts = np.diff(g.person_start[lo : hi + 1])
    n = int(counts.sum())
    ll, place = np.empty((n, NODES.size)), np.empty(n, np.int64)
    blocks, responses = par.shape[0] // max(g.n_items, 1), (g.person_start, g.person_item, g.person_score)
    node_log_likelihoods(g.model.tag, *responses, mean, sd, NODES, par, blocks, turn, ll, place, lo, hi)
    return np.repeat(np.arange(hi - lo), counts), ll, place


def _message(whole: Array) -> Array:
    """Logarithm of the normal message at the nodes, with which the examinees' mean is 0 and their variance 1.

    Newton's steps on (eta_1, eta_2), both convex; where the second comes out below `LEAST` the mean alone is matched.
    """
    eta = np.tile([0.0, 0.5], (whole.shape[0], 1))
    left, powers = np.arange(whole.shape[0]), NODES[:, None] ** np.arange(1, 5)
    tiny = np.finfo(np.float64).eps
    for _ in range(ROUNDS):
        x1, x2, x3, x4 = (_weights(whole[left] + _normal(eta[left])) @ powers).T
        a, b, c = x2 - x1**2 + tiny, -0.5 * (x3 - x1 * x2), 0.25 * (x4 - x2**2) + tiny
        short, wide = -x1, 0.5 * (x2 - 1.0)
        second = np.clip((a * wide - b * short) / np.maximum(a * c - b**2, tiny), -LONGEST, LONGEST)
        second = np.maximum(eta[left, 1] + second, LEAST) - eta[left, 1]
        first = np.clip((short - b * second) / a, -LONGEST, LONGEST)
        eta[left, 0] += first
        eta[left, 1] += second
        left = left[np.maximum(np.abs(first), np.abs(second)) > CLOSE]
        if not left.size:
            break
    return _normal(eta)


def _normal(eta: Array) -> Array:
    return eta[:, :1] * NODES - 0.5 * eta[:, 1:] * NODES**2


def _weights(log_density: Array) -> Array:
    weight = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _moments(log_density: Array) -> tuple[Array, Array]:
    """Mean and SD over the nodes."""
    mean, square = (_weights(log_density) @ np.stack([NODES, NODES**2], axis=1)).T
    return mean, np.sqrt(np.maximum(square - mean**2, np.finfo(np.float64).eps))
