"""How far to trust a link: influence of single anchors, effective number of anchors, and a table over methods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from concal.linking import kernels
from concal.linking.criteria import (
    MOMENT_METHODS,
    Anchors,
    Array,
    Quadrature,
    chain_to_link,
    make_loss,
    moment_link,
    moved_nodes,
    sides,
    stocking_lord_sums,
)
from concal.linking.solve import Criterion, solve
from concal.linking.stored import Block

_H = 1e-4  # step of the difference that gives a curve's second derivative


def method_table(blocks: Sequence[Block], quadrature: Quadrature, delta: float) -> list[dict[str, object]]:
    """(A, B) at the posterior means under the methods people compare."""
    mean = [b.mean for b in blocks]
    rows: list[dict[str, object]] = []
    for method in MOMENT_METHODS:
        A, B = moment_link(method, mean)
        rows.append({"method": method, "loss": None, "grid_metric": None, "A": float(A[0]), "B": float(B[0])})
    for method, loss, grid in (
        ("stocking_lord", "squared", "ref"),
        ("stocking_lord", "squared", "symmetric"),
        ("haebara", "squared", "ref"),
        ("haebara", "squared", "focal"),
        ("haebara", "squared", "symmetric"),
        ("haebara", "pseudo_huber", "ref"),
        ("haebara", "pseudo_huber", "focal"),
        ("haebara", "pseudo_huber", "symmetric"),
    ):
        answer = solve(mean, Criterion(method, make_loss(loss, delta=delta), quadrature, grid))
        rows.append(
            {"method": method, "loss": loss, "grid_metric": grid, "A": float(answer.A[0]), "B": float(answer.B[0])}
        )
    return rows


def anchor_influence(blocks: list[Anchors], criterion: Criterion, A: float, B: float) -> tuple[Array, Array, Array]:
    r"""What (A, B) would change by without each anchor, and each anchor's share of the information.

    One Newton step from the solution on the criterion without anchor j:
    :math:`\Delta_j = -(H - H_j)^{-1}(g - g_j)`, in (log A, B). `blocks` hold one draw (posterior means).
    With a robust loss on Stocking-Lord's single test curve the step gives the direction only.

    Returns
    -------
    influence_A, influence_B, information : (anchors,)
        In the order of the blocks. Information is the anchor's Gauss-Newton term for B, robust weight included.
    """
    if criterion.method in MOMENT_METHODS:
        return _moment_influence(blocks, criterion.method)
    gradient: Array = np.zeros(2)
    hessian: Array = np.zeros((2, 2))
    n = sum(b.omega.size for b in blocks)
    information = np.zeros(n)
    for side in sides(criterion.grid_metric):
        r, g, c, omega, v, scale = _pointwise(blocks, criterion.quadrature.nodes, A, B, side)
        w = criterion.quadrature.weights
        if criterion.method == "stocking_lord":
            # the test curves without anchor j
            own = omega[:, None] * np.stack([r, -g, -c])
            sums = stocking_lord_sums(own.sum(axis=1, keepdims=True) - own, criterion.loss)
            weight = np.ones_like(r)
        else:
            rho, psi, dpsi = criterion.loss.value(r)
            own1, own2 = -omega[:, None] * psi * g, omega[:, None] * (dpsi * g * g - psi * c)
            sums = np.stack([rho, own1.sum(axis=0) - own1, own2.sum(axis=0) - own2])
            weight = np.divide(psi, r, out=np.ones_like(r) * _top_weight(criterion), where=np.abs(r) > 1e-12)
        _, grad, hess = chain_to_link(sums, w, np.full(n, A), np.broadcast_to(v, r.shape), side)
        gradient, hessian = gradient + grad, hessian + hess
        information += omega * ((weight * (g * scale) ** 2) @ w)
    step: Array = np.asarray(-np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0], dtype=np.float64)
    return np.asarray(A * np.expm1(step[:, 0])), step[:, 1], information


def _top_weight(criterion: Criterion) -> float:
    """psi(r)/r at r = 0."""
    loss = criterion.loss
    return 1.0 if loss.kind == kernels.SQUARED else float(loss.power * loss.eps ** (0.5 * loss.power - 1.0))


def _pointwise(
    blocks: list[Anchors], t: Array, A: float, B: float, side: str
) -> tuple[Array, Array, Array, Array, Array, float]:
    """Residuals, slopes and second derivatives in the moved node, all (anchors, nodes), and |dv/dB|."""
    moved, v = moved_nodes(t, A, B, side)
    parts = []
    for b in blocks:
        ref, foc = (b.ref_model, b.ref[0][:, None, :]), (b.foc_model, b.foc[0][:, None, :])
        (still, still_xi), (moving, xi) = (ref, foc) if side == "ref" else (foc, ref)
        a = np.exp(xi[..., 1])
        e, slope = moving.expected_curve(moved, xi)
        up, down = (moving.expected_curve(moved + h, xi)[1] for h in (_H, -_H))
        parts.append((still.expected_score(t, still_xi) - e, a * slope, a * (up - down) / (2.0 * _H)))
    r, g, c = (np.concatenate([p[i] for p in parts]) for i in range(3))
    return r, g, c, np.concatenate([b.omega for b in blocks]), v, 1.0 / A if side == "ref" else 1.0


def _moment_influence(blocks: list[Anchors], method: str) -> tuple[Array, Array, Array]:
    """Exact leave-one-out of a moment link: every anchor in turn gets weight zero."""
    omega = np.concatenate([b.omega for b in blocks])
    A, B = moment_link(method, blocks)
    out = np.zeros((2, omega.size))
    d_ref, d_foc, l_ref, l_foc = (
        np.concatenate([getattr(b, side)[0, :, k] for b in blocks])
        for side, k in (("ref", 0), ("foc", 0), ("ref", 1), ("foc", 1))
    )

    def without(x: Array) -> Array:
        return np.asarray((omega @ x - omega * x) / (omega.sum() - omega))

    m_ref, m_foc = without(d_ref), without(d_foc)
    if method == "mean_mean":
        slope = without(np.exp(l_foc)) / without(np.exp(l_ref))
    elif method == "log_mean_mean":
        slope = np.exp(without(l_foc - l_ref))
    else:
        slope = np.sqrt((without(d_ref**2) - m_ref**2) / (without(d_foc**2) - m_foc**2))
    out[0], out[1] = slope - A, m_ref - slope * m_foc - B
    return out[0], out[1], omega


def effective_number(information: Array) -> float:
    r"""Anchors that carry the link: :math:`(\sum_j h_j)^2/\sum_j h_j^2` of their information terms h_j."""
    total = float((information**2).sum())
    return float(information.sum() ** 2 / total) if total > 0 else 0.0
