r"""What a link minimises: losses, quadrature, the characteristic-curve criteria, and the moment methods.

With theta_ref = A theta + B and both curves of an anchor on [0, 1]:

Haebara, nodes on the reference metric ("ref")
    :math:`\sum_k w_k \sum_j \omega_j\,\rho\{E_j^{ref}(t_k) - E_j((t_k - B)/A)\}`
Haebara, nodes on the period's metric ("focal")
    :math:`\sum_k w_k \sum_j \omega_j\,\rho\{E_j^{ref}(A t_k + B) - E_j(t_k)\}`
Stocking-Lord
    the same with :math:`\rho\{\sum_j\omega_j(\cdot)\}`, the difference of the test curves
"symmetric"
    the sum of "ref" and "focal"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.errors import LinkError
from concal.linking import kernels
from concal.response import ResponseModel

if TYPE_CHECKING:
    from concal.linking.stored import Block

Array = npt.NDArray[np.float64]

MOMENT_METHODS = ("mean_mean", "mean_sigma", "log_mean_mean")
CURVE_METHODS = ("haebara", "stocking_lord")


@dataclass(frozen=True)
class Loss:
    r"""A loss :math:`\rho` in the form the kernels know: kind, eps, power.

    The pseudo-Huber loss :math:`\delta^2(\sqrt{1 + (z/\delta)^2} - 1)` has the minimiser of
    :math:`\sqrt{z^2 + \delta^2}`, the power loss with power 1 and eps = delta^2; both run through the ROOT kernel.
    """

    kind: int
    eps: float = 0.0
    power: float = 2.0

    def value(self, z: Array) -> tuple[Array, Array, Array]:
        """Rho, its first and its second derivative."""
        if self.kind == kernels.SQUARED:
            return 0.5 * z * z, z, np.ones_like(z)
        y = z * z + self.eps
        rho = y ** (0.5 * self.power)
        psi = self.power * z * rho / y
        return rho, psi, self.power * rho / y * (1.0 + (self.power - 2.0) * z * z / y)


def make_loss(loss: str, delta: float = 0.05, power: float = 2.0, eps: float = 0.0) -> Loss:
    """A loss by its public name: squared, pseudo_huber (delta) or power (power, eps)."""
    if loss == "squared" or (loss == "power" and power == 2.0):
        return Loss(kernels.SQUARED)
    if loss == "pseudo_huber":
        if not (np.isfinite(delta) and delta > 0):
            raise LinkError(f"the pseudo-Huber loss needs delta > 0, got {delta}")
        return Loss(kernels.ROOT, float(delta) ** 2, 1.0)
    if loss == "power":
        if not 0 < power <= 2:
            raise LinkError(f"the power loss needs 0 < power <= 2, got {power}")
        if not eps > 0:
            raise LinkError(f"the power loss with power = {power} has a corner at 0 and needs eps > 0, got eps = {eps}")
        return Loss(kernels.ROOT if power == 1.0 else kernels.POWER, float(eps), float(power))
    raise LinkError(f"unknown loss {loss!r}; known: squared, pseudo_huber, power")


@dataclass(frozen=True)
class Quadrature:
    """Increasing nodes and their weights (any scale)."""

    nodes: Array
    weights: Array


def make_quadrature(nodes: npt.ArrayLike | None = None, weights: npt.ArrayLike | None = None) -> Quadrature:
    """The default 61 nodes on [-6, 6] with normal weights, or the user's nodes and weights (default: normal)."""
    t = np.linspace(-6.0, 6.0, 61) if nodes is None else np.asarray(nodes, dtype=np.float64).ravel()
    w = np.exp(-0.5 * t * t) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
    if t.size < 3 or t.size != w.size:
        raise LinkError(f"a link needs at least 3 nodes and one weight each, got {t.size} nodes, {w.size} weights")
    if not (np.isfinite(t).all() and np.isfinite(w).all() and (w >= 0).all() and w.sum() > 0):
        raise LinkError("nodes and node weights must be finite, the weights not negative and not all zero")
    order = np.argsort(t, kind="stable")
    t, w = t[order], w[order]
    if (np.diff(t) <= 0).any():
        raise LinkError("quadrature nodes must differ from each other")
    return Quadrature(t, w / w.sum())


@dataclass(frozen=True)
class Anchors:
    """Anchors of one pair of item groups, draw by draw: the same items, seen from the two metrics.

    Attributes
    ----------
    ref_model, foc_model : ResponseModel
        Usually the same; an item that changed its format still has an expected-score curve on either side.
    ref, foc : (draws, anchors, parameters), float32 or float64
        xi on the reference metric, and on the period's own, in the precision they are kept in.
    omega : (anchors,) float64
        Weights.
    """

    ref_model: ResponseModel
    foc_model: ResponseModel
    ref: npt.NDArray[np.floating]
    foc: npt.NDArray[np.floating]
    omega: Array

    @property
    def n_draws(self) -> int:
        """Draws."""
        return int(self.ref.shape[0])

    def take(self, draws: slice | npt.NDArray[np.int64]) -> Anchors:
        """Some of the draws."""
        return Anchors(self.ref_model, self.foc_model, self.ref[draws], self.foc[draws], self.omega)

    def ref_at(self, k: int) -> npt.NDArray[np.floating]:
        """Coordinate k of xi on the reference metric, (draws, anchors)."""
        return self.ref[:, :, k]

    def foc_at(self, k: int) -> npt.NDArray[np.floating]:
        """Coordinate k of xi on the period's own metric, (draws, anchors)."""
        return self.foc[:, :, k]

    @cached_property
    def mean(self) -> Anchors:
        """The posterior means as a single draw, float64."""
        ref, foc = (x.mean(axis=0, keepdims=True, dtype=np.float64) for x in (self.ref, self.foc))
        return Anchors(self.ref_model, self.foc_model, ref, foc, self.omega)


def moment_link(method: str, blocks: Sequence[Block]) -> tuple[Array, Array]:
    r"""(A, B) per draw from moments of the anchors' locations and discriminations, weighted by omega.

    mean_sigma: :math:`A = s(d^{ref})/s(d)`; mean_mean: :math:`A = \bar a/\bar a^{ref}`; log_mean_mean: the same with
    geometric means; always :math:`B = \bar d^{ref} - A\bar d`.
    """
    total = sum(float(b.omega.sum()) for b in blocks)

    def mean(of: Callable[[Block], npt.NDArray[np.floating]]) -> Array:
        """Weighted mean over the anchors of all blocks, per draw."""
        return np.asarray(sum(of(b).astype(np.float64) @ b.omega for b in blocks) / total)

    mean_ref, mean_foc = mean(lambda b: b.ref_at(0)), mean(lambda b: b.foc_at(0))
    if method == "mean_mean":
        A = mean(lambda b: np.exp(b.foc_at(1))) / mean(lambda b: np.exp(b.ref_at(1)))
    elif method == "log_mean_mean":
        A = np.exp(mean(lambda b: b.foc_at(1)) - mean(lambda b: b.ref_at(1)))
    elif method == "mean_sigma":
        spread = mean(lambda b: (b.foc_at(0) - mean_foc[:, None]) ** 2)
        if not (spread > 0).all():
            raise LinkError("mean_sigma needs anchors that differ in location; use log_mean_mean or haebara")
        A = np.sqrt(mean(lambda b: (b.ref_at(0) - mean_ref[:, None]) ** 2) / spread)
    else:
        raise LinkError(f"unknown linking method {method!r}; known: {', '.join(CURVE_METHODS + MOMENT_METHODS)}")
    return A, metric.shift_to(mean_ref, A, mean_foc)


def sides(grid_metric: str) -> tuple[str, ...]:
    """The metrics that have nodes: "ref", "focal" or both."""
    return ("ref", "focal") if grid_metric == "symmetric" else (grid_metric,)


def moved_nodes(t: Array, A: Array | float, B: Array | float, side: str) -> tuple[Array, Array]:
    """Nodes `t` of one side on the other side's metric, and what of them `chain_to_link` takes for v."""
    if side == "ref":
        moved = metric.own_theta(t, A, B)
        return moved, moved
    return metric.move_theta(t, A, B), A * t


def chain_to_link(sums: Array, w: Array, A: Array, v: Array, side: str) -> tuple[Array, Array, Array]:
    r"""Value, gradient and Hessian in (log A, B) from the node sums f, f', f''.

    Nodes on the reference metric: :math:`v = (t - B)/A`, so v_x = -v, v_B = -1/A, v_xx = v, v_xB = 1/A with
    x = log A. Nodes on the period's metric: :math:`v = A t + B`, so v_x = v - B = v_xx and v_B = 1 (`v` then holds
    v - B).
    """
    f, f1, f2 = sums
    if side == "ref":
        vx, vb = -v, -1.0 / A[:, None]
        vxx, vxb = v, 1.0 / A[:, None]
    else:
        vx, vb = v, np.ones_like(A)[:, None]
        vxx, vxb = v, np.zeros_like(A)[:, None]
    gradient = np.stack([(f1 * vx) @ w, (f1 * vb) @ w], axis=-1)
    xx = (f2 * vx * vx + f1 * vxx) @ w
    xb = (f2 * vx * vb + f1 * vxb) @ w
    bb = (f2 * vb * vb) @ w
    return f @ w, gradient, np.stack([np.stack([xx, xb], -1), np.stack([xb, bb], -1)], -2)


def stocking_lord_sums(sums: Array, loss: Loss) -> Array:
    r"""Stocking-Lord's node sums f, f', f'' of :math:`\rho(R)` from R and its first two derivatives."""
    R, R1, R2 = sums
    rho, psi, dpsi = loss.value(R)
    return np.stack([rho, psi * R1, dpsi * R1 * R1 + psi * R2])
