r"""The change of metric, :math:`\theta_{ref} = A\theta + B`, and everything it moves.

Locations and slopes move as :math:`d \to A d + B`, :math:`\log a \to \log a - \log A`; every further coordinate of an
item lives on the logit metric and stays. With :math:`D = diag(A, 1, \ldots)` and :math:`t = (B, -\log A, 0, \ldots)`

.. math:: \xi \to D\xi + t, \qquad X\beta \to D X\beta + t, \qquad \Sigma \to D\Sigma D, \qquad
          E_{ref}(\theta_{ref}) = E(\theta).

In slope and intercept, :math:`\phi = (c, a, e)` with :math:`c = -a d`, it is linear,

.. math:: \phi = M\phi_{ref}, \qquad M = \begin{pmatrix} 1 & B & \\ & A & \\ & & I \end{pmatrix},

so a factor that is quadratic in phi stays one. Nothing outside this file writes these rules down.
A and B broadcast: scalars, one pair per draw, or one per lane of the engine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


# items


def move_items(xi: npt.ArrayLike, A: npt.ArrayLike, B: npt.ArrayLike) -> Array:
    """Items xi (..., p) on the metric A theta + B; A and B broadcast against the leading axes."""
    moved = np.array(xi, dtype=np.float64, copy=True)
    moved[..., 0] = np.asarray(A) * moved[..., 0] + np.asarray(B)
    moved[..., 1] = moved[..., 1] - np.log(A)
    return moved


def rows_moved(A: Array, B: Array, p: int) -> tuple[Array, Array]:
    """The same lane by lane: factors and summands (p, lanes) of rows (..., p, lanes) of items.

    Coefficients of features have the same factors; the intercept's alone have the summands.
    """
    scale, shift = np.ones((p, A.size)), np.zeros((p, A.size))
    scale[0], shift[0], shift[1] = A, B, -np.log(A)
    return scale, shift


def move_item_covariance(covariance: Array, A: npt.ArrayLike) -> Array:
    """D C D for covariances of xi (..., p, p): of single items, or Sigma."""
    moved = np.array(covariance, dtype=np.float64, copy=True)
    scale = np.asarray(A, dtype=np.float64)[..., None]
    moved[..., 0, :] *= scale
    moved[..., :, 0] *= scale
    return moved


# slope and intercept


def phi_of(xi: npt.ArrayLike) -> Array:
    """Slope and intercept phi = (c, a, e) of items xi = (d, log a, e), c = -a d."""
    phi = np.array(xi, dtype=np.float64, copy=True)
    a = np.exp(phi[..., 1])
    phi[..., 0] *= -a
    phi[..., 1] = a
    return phi


def xi_of(phi: npt.ArrayLike) -> Array:
    """Items xi of slope and intercept; slopes must be positive."""
    xi = np.array(phi, dtype=np.float64, copy=True)
    xi[..., 0] = -xi[..., 0] / xi[..., 1]
    xi[..., 1] = np.log(xi[..., 1])
    return xi


def slopes_of_xi(phi: Array) -> Array:
    """K = d xi / d phi at phi (items, p), (items, p, p): d = -c / a, log a = log a."""
    n, p = phi.shape
    K = np.broadcast_to(np.eye(p), (n, p, p)).copy()
    c, a = phi[:, 0], phi[:, 1]
    K[:, 0, 0], K[:, 0, 1], K[:, 1, 1] = -1.0 / a, c / a**2, 1.0 / a
    return K


def slope_pattern(location: Array, p: int) -> Array:
    """How xi moves with log a while the intercept stays, (items, p): d = -c / a falls by d; locations (items,)."""
    out = np.zeros((location.shape[0], p))
    out[:, 0], out[:, 1] = -location, 1.0
    return out


def gradient_in_phi(gradient: Array, xi: Array) -> Array:
    """Gradients in xi (..., p) as gradients in phi, at items xi: d = -c / a, log a = log a."""
    a, d = np.exp(xi[..., 1]), xi[..., 0]
    out = np.array(gradient, dtype=np.float64, copy=True)
    out[..., 0] = -gradient[..., 0] / a
    out[..., 1] = (gradient[..., 1] - d * gradient[..., 0]) / a
    return out


def own_phi(phi_ref: npt.ArrayLike, A: npt.ArrayLike, B: npt.ArrayLike) -> Array:
    """M phi_ref: an item given on the reference metric, as the period with the link (A, B) sees it."""
    phi = np.array(phi_ref, dtype=np.float64, copy=True)
    phi[..., 0] = phi[..., 0] + np.asarray(B) * phi[..., 1]
    phi[..., 1] = np.asarray(A) * phi[..., 1]
    return phi


def move_factor(Q: Array, h: Array, A: npt.ArrayLike, B: npt.ArrayLike) -> tuple[Array, Array]:
    """M'QM and M'h: a period's factor exp(-phi'Q phi/2 + h'phi) as a function of phi on the reference metric.

    Q is (..., p, p), h (..., p); A and B are scalars or broadcast against the leading axes.
    """
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    rows = np.array(Q, dtype=np.float64, copy=True)
    rows[..., 1, :] = B[..., None] * Q[..., 0, :] + A[..., None] * Q[..., 1, :]
    moved = rows.copy()
    moved[..., :, 1] = B[..., None] * rows[..., :, 0] + A[..., None] * rows[..., :, 1]
    shift = np.array(h, dtype=np.float64, copy=True)
    shift[..., 1] = B * h[..., 0] + A * h[..., 1]
    return moved, shift


def patterns(slope: Array, p: int) -> Array:
    r"""How phi moves with a small change of metric: d phi / d(log A, B) at (1, 0), (items, p, 2).

    .. math:: P_j = \begin{pmatrix} 0 & -a_j \\ -a_j & 0 \\ 0 & 0 \end{pmatrix}
    """
    out = np.zeros((slope.shape[0], p, 2))
    out[:, 1, 0] = -slope
    out[:, 0, 1] = -slope
    return out


def location_patterns(location: Array, p: int) -> Array:
    r"""The same for xi: d xi / d(log A, B), rows (d, 1), (-1, 0), zeros; (items, p, 2)."""
    out = np.zeros((location.shape[0], p, 2))
    out[:, 0, 0] = location
    out[:, 1, 0] = -1.0
    out[:, 0, 1] = 1.0
    return out


def move_change(C: Array, A: float, B: float) -> Array:
    r"""Covariance C of a small change theta -> e^u theta + v made before a link, as that of one made after it.

    After theta_ref = A theta + B it is (u, A v - B u). With A = 1, of the link's own (log A, B).
    """
    S = np.array([[1.0, 0.0], [-B, A]])
    return np.asarray(S @ C @ S.T)


# the population model


def move_beta(beta: Array, A: npt.ArrayLike, B: npt.ArrayLike) -> Array:
    """Coefficients (..., features, p): the d column scaled, the intercepts (the first feature) shifted by t."""
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    moved = np.array(beta, dtype=np.float64, copy=True)
    moved[..., 0] *= A[..., None]
    moved[..., 0, 0] += B
    moved[..., 0, 1] -= np.log(A)
    return moved


def beta_patterns(beta: Array) -> Array:
    """How coefficients (features, p) move with a small change of metric, feature-major: (features * p, 2).

    d beta / d(log A, B) at (1, 0): what `location_patterns` is for items.
    """
    out = np.zeros((*beta.shape, 2))
    out[:, 0, 0] = beta[:, 0]
    out[0, 1, 0] = -1.0
    out[0, 0, 1] = 1.0
    return out.reshape(-1, 2)


def move_beta_covariance(V: Array, A: float, p: int) -> Array:
    """Covariance of the coefficients (features * p, same), feature-major: every d coefficient is scaled by A."""
    scale = np.ones(V.shape[0])
    scale[::p] = A
    return np.asarray(scale[:, None] * V * scale)


def move_log_cholesky(coordinates: Array, A: float) -> Array:
    """Log-Cholesky coordinates of D Sigma D from those of Sigma: only log L_11 moves."""
    moved = np.array(coordinates, dtype=np.float64, copy=True)
    moved[..., 0] += np.log(A)
    return moved


# abilities and curves


def move_abilities(mean: Array, sd: Array, A: npt.ArrayLike, B: npt.ArrayLike) -> tuple[Array, Array]:
    """Means and SDs of abilities on the metric A theta + B."""
    return move_theta(mean, A, B), np.asarray(np.asarray(A) * sd)


def move_theta(theta: npt.ArrayLike, A: npt.ArrayLike, B: npt.ArrayLike) -> Array:
    """Points of the trait metric (abilities, quadrature nodes, locations) on the reference's: A theta + B."""
    return np.asarray(np.asarray(A) * np.asarray(theta) + np.asarray(B))


def own_theta(theta_ref: npt.ArrayLike, A: npt.ArrayLike, B: npt.ArrayLike) -> Array:
    """Where abilities of the reference metric lie on the period's own: (theta_ref - B) / A; moves curves."""
    return np.asarray((np.asarray(theta_ref) - np.asarray(B)) / np.asarray(A))


class LinkMoments(NamedTuple):
    """Means, variances and the covariance of A and B, what is not known of a link; arrays of one shape."""

    A: Array
    B: Array
    variance_A: Array
    variance_B: Array
    covariance: Array


def link_moments(A: Array, B: Array) -> LinkMoments:
    """Moments of a link's draws, along the first axis."""
    a, b = A.mean(axis=0), B.mean(axis=0)
    return LinkMoments(a, b, A.var(axis=0), B.var(axis=0), ((A - a) * (B - b)).mean(axis=0))


def move_uncertain(mean: Array, sd: Array, link: LinkMoments) -> tuple[Array, Array, Array]:
    r"""Posterior mean of an ability N(m, s^2) that does not depend on its link, and its SDs from measuring and linking.

    .. math:: E = \bar A m + \bar B, \qquad Var(A\theta + B) = E[A^2] s^2 + Var(A m + B)
    """
    measured = (link.A**2 + link.variance_A) * sd**2
    linked = link.variance_A * mean**2 + 2.0 * link.covariance * mean + link.variance_B
    return move_theta(mean, link.A, link.B), np.sqrt(measured), np.sqrt(np.maximum(linked, 0.0))


# links themselves


class Constants(NamedTuple):
    """(A, B) of theta_ref = A theta + B; arrays of one shape."""

    A: Array
    B: Array


def shift_to(there: npt.ArrayLike, A: npt.ArrayLike, own: npt.ArrayLike) -> Array:
    """B = there - A own: the shift that takes the point `own` to `there`."""
    return np.asarray(np.asarray(there) - np.asarray(A) * np.asarray(own))


def compose(outer: Constants, inner: Constants) -> Constants:
    """First `inner`, then `outer`: A = A_o A_i, B = A_o B_i + B_o."""
    return Constants(outer.A * inner.A, outer.A * inner.B + outer.B)


def invert(link: Constants) -> Constants:
    """From the reference back: (1 / A, -B / A)."""
    return Constants(1.0 / link.A, -link.B / link.A)
