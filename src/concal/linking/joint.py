r"""Haebara's criterion with a common curve per anchor, estimated along with the link.

.. math::

    \min_{A, B, \xi_1, \ldots, \xi_n} \sum_k w_k \sum_j \omega_j \bigl[
        \rho\{E(t_k; \xi_j) - E_j^{ref}(t_k)\} + \rho\{E(A t_k + B; \xi_j) - E_j(t_k)\}\bigr]

The common items :math:`\xi_j` are on the reference metric; the nodes live on each table's own metric. Neither table is
taken as given, so the link of the reversed tables is exactly the inverse. Minimised are their d and log a. Further
coordinates, which no change of metric moves, stay at the mean of the two tables on xi's scale: an expected-score curve
says so little about some of them (thresholds, cuts) that they can run off to infinity.

Every term holds (log A, B) and a single item, so the Hessian is an arrow: a 2 x 2 corner, one small block per item, and
the borders. Newton's method profiles the items out block by block, at a cost proportional to their number.
"""

from __future__ import annotations

import numpy as np

from concal import metric
from concal.errors import LinkError
from concal.linking.criteria import Anchors, Array, Loss, Quadrature, moment_link

_MAX_PASSES = 200
_MAX_STEP = 1.0
_H = 1e-5  # central differences: truncation and rounding both near 1e-10
_NOISE = 1e-12  # below this a relative rise of the value is rounding


def solve_joint(anchors: Anchors, loss: Loss, quadrature: Quadrature) -> tuple[float, float]:
    """(A, B) that minimise the joint criterion, by Newton's method from the log-mean-mean link.

    Parameters
    ----------
    anchors
        A single draw, with the same response model on either side.
    loss
        The loss of both differences.
    quadrature
        Nodes and weights, used on each table's own metric.

    Raises
    ------
    LinkError
        Where Newton's method finds no minimum: there is no second method to hand the anchors to.

    Notes
    -----
    A power loss with power < 1 is not convex in the curves; the minimum found may then be a local one.
    """
    A, B = moment_link("log_mean_mean", [anchors])
    ref, foc = anchors.ref[0].astype(np.float64), anchors.foc[0].astype(np.float64)
    criterion = _JointCriterion(anchors, ref, foc, loss, quadrature)
    link = np.array([np.log(A[0]), B[0]])
    items = 0.5 * (ref + metric.move_items(foc, A[0], B[0]))[:, :2]
    for _ in range(_MAX_PASSES):
        value, gradient = criterion(link, items)
        step_link, step_items = _newton_step(gradient, criterion.hessian(link, items))
        drop = -(gradient[:, :2].sum(axis=0) @ step_link + (gradient[:, 2:] * step_items).sum())
        if np.abs(step_link).max() < 1e-10 and drop < 1e-16:
            return float(np.exp(link[0] + step_link[0])), float(link[1] + step_link[1])
        length = min(1.0, _MAX_STEP / max(np.abs(step_link).max(), np.abs(step_items).max()))
        while not criterion(link + length * step_link, items + length * step_items)[0] <= value + _NOISE * value:
            length *= 0.5
            if length < 1e-10:
                raise _no_minimum(link)
        link, items = link + length * step_link, items + length * step_items
    raise _no_minimum(link)


def _no_minimum(link: Array) -> LinkError:
    return LinkError(
        f"haebara_joint found no minimum; it stopped at A = {np.exp(link[0]):.6g}, B = {link[1]:.6g}. "
        "Use a smoother loss (larger delta or eps, or squared), or haebara with grid_metric='symmetric'"
    )


class _JointCriterion:
    """The criterion at any link (log A, B) and common items (d, log a), their further coordinates given."""

    def __init__(self, anchors: Anchors, ref: Array, foc: Array, loss: Loss, quadrature: Quadrature) -> None:
        self.model, self.loss, self.t = anchors.ref_model, loss, quadrature.nodes
        self.extras = 0.5 * (ref[:, 2:] + foc[:, 2:])
        self.weights = (anchors.omega / anchors.omega.sum())[:, None] * quadrature.weights
        self.ref, self.foc = (self.model.expected_score(self.t, xi[:, None, :]) for xi in (ref, foc))

    def __call__(self, link: Array, items: Array) -> tuple[float, Array]:
        """Value, and each item's share (anchors, 4) of the gradient in (log A, B, d, log a)."""
        A, B = np.exp(link[0]), link[1]
        d, a = items[:, :1], np.exp(items[:, 1:])
        xi = np.concatenate([items, self.extras], axis=1)[:, None, :]
        value, pull_ref = self._side(self.t, xi, self.ref)
        moved = metric.move_theta(self.t, A, B)
        value_foc, pull_foc = self._side(moved, xi, self.foc)
        by_ref, by_foc = pull_ref * a, pull_foc * a
        gradient = np.stack(
            [
                by_foc @ (A * self.t),
                by_foc.sum(axis=1),
                -(by_ref + by_foc).sum(axis=1),
                (by_ref * (self.t - d) + by_foc * (moved - d)).sum(axis=1),
            ],
            axis=-1,
        )
        return value + value_foc, gradient

    def _side(self, theta: Array, xi: Array, target: Array) -> tuple[float, Array]:
        """Loss of the common curves at theta against a table's, and its derivative in eta by item and node."""
        curve, slope = self.model.expected_curve(theta, xi)
        rho, psi, _ = self.loss.value(curve - target)
        return float((self.weights * rho).sum()), self.weights * psi * slope

    def hessian(self, link: Array, items: Array) -> Array:
        """Each item's share (anchors, 4, 4) of the Hessian, by differences of gradients.

        Moving a coordinate of all items at once is enough, for no item's share depends on another item.
        """
        columns = []
        for h in _H * np.eye(4):
            up, down = (self(link + side * h[:2], items + side * h[2:])[1] for side in (1.0, -1.0))
            columns.append((up - down) / (2.0 * _H))
        H = np.stack(columns, axis=-1)
        return np.asarray(0.5 * (H + np.swapaxes(H, -1, -2)))


def _newton_step(gradient: Array, hessian: Array) -> tuple[Array, Array]:
    r"""Newton's step in the link and in the items, the items profiled out.

    With the corner U, borders :math:`C_j` and blocks :math:`K_j`: :math:`S = U - \sum_j C_j K_j^{-1} C_j'`,
    :math:`\Delta = -S^{-1}(g - \sum_j C_j K_j^{-1} g_j)`, :math:`\Delta_j = -K_j^{-1}(g_j + C_j'\Delta)`.
    """
    border, block = hessian[:, :2, 2:], _positive_inverse(hessian[:, 2:, 2:])
    through = border @ block
    schur = hessian[:, :2, :2].sum(axis=0) - (through @ np.swapaxes(border, -1, -2)).sum(axis=0)
    profiled = gradient[:, :2].sum(axis=0) - np.einsum("jup,jp->u", through, gradient[:, 2:])
    link: Array = -_positive_inverse(schur) @ profiled
    items: Array = -np.einsum("jpq,jq->jp", block, gradient[:, 2:] + np.einsum("jup,u->jp", border, link))
    return link, items


def _positive_inverse(matrix: Array) -> Array:
    """Inverse with the eigenvalues made positive, so that the step goes downhill away from the minimum too."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.abs(values)
    values = np.maximum(values, 1e-8 * values.max(axis=-1, keepdims=True) + 1e-300)
    return np.asarray((vectors / values[..., None, :]) @ np.swapaxes(vectors, -1, -2))
