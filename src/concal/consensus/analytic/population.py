r"""The paper's population layer: one (beta*, Sigma*) from the periods' population posteriors, hyperprior counted once.

.. math:: \beta^* = b_0 + \Big(\sum_m V_m^{-1} - (M-1) T\Big)^{-1} \sum_m V_m^{-1} (b_m - b_0)

Sigma* is the item-count-weighted mean of the periods' Sigma in log-Cholesky coordinates. The hyperprior, of mean b_0
and precision T, is weak and not moved by the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from concal.calibration.priors import beta_moments
from concal.consensus.analytic.totals import FormTotals
from concal.consensus.gaussian import feature_quadratic, from_log_cholesky, inverse, raise_eigenvalues, symmetric
from concal.errors import DataError

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """Population of a group: beta (features, p) with its covariance (features * p, same), and Sigma (p, p)."""

    beta: Array
    beta_covariance: Array
    sigma: Array

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean X beta (n, p) and covariance Sigma + X V X' (n, p, p) of xi for items with features X."""
        return X @ self.beta, self.sigma + feature_quadratic(X, self.beta_covariance, self.sigma.shape[0])


def consensus_population(form: FormTotals) -> Population:
    """beta* and Sigma* of one form of a group."""
    p = len(form.model.parameters)
    if form.population_weight <= 0:
        raise DataError(
            f"group {form.name!r}: every period with its newest features was calibrated with priors from the bank, so "
            'nothing tells its population; replace one of them, added with calibration.prior = "population"'
        )
    if form.item_weight <= 0:
        raise DataError(f"group {form.name!r}: no period has an item with a response; its population is unknown")
    b_0, once = beta_moments(form.hyperprior / form.population_weight, form.model.prior)
    precision = symmetric(form.beta_precision + once)
    try:
        # draw noise may take directions nobody has information about below the hyperprior, where the precision is to be
        # the hyperprior's own: half of it protects from a beta and a covariance without bounds, and leaves room for
        # the noise of directions that are told
        precision = raise_eigenvalues(precision[None], once[None], 0.5)[0]
    except np.linalg.LinAlgError:
        raise DataError(
            f"group {form.name!r}: the combined precision of beta is not positive definite; a feature is not "
            "identified by any period and has no hyperprior"
        ) from None
    covariance = inverse(precision)
    beta = b_0 + (covariance @ form.beta_shift).reshape(-1, p)
    return Population(beta, covariance, from_log_cholesky(form.sigma / form.item_weight, p))


def with_common_evidence(forms: Sequence[FormTotals]) -> list[FormTotals]:
    r"""Forms of a group with what the others say of the coordinates that belong to the whole group.

    Equal slopes and steps have one value for the items of all forms. What another form says of them, its other
    coefficients u integrated out under their hyperprior, is added to a form's own sums,

    .. math:: P_{ss} \mathrel{+}= P'_{ss} - P'_{su} (P'_{uu} + T_{uu})^{-1} P'_{us}, \qquad
              h_s \mathrel{+}= h'_s - P'_{su} (P'_{uu} + T_{uu})^{-1} h'_u .

    Steps of another number of categories are others: forms of another response model stay by themselves.
    """
    found = []
    for form in forms:
        alike = [f for f in forms if f is not form and f.model == form.model and f.population_weight > 0]
        if not form.model.shared or form.population_weight <= 0 or not alike:
            found.append(form)
            continue
        s = np.array(form.model.shared)
        precision, shift = form.beta_precision.copy(), form.beta_shift.copy()
        for other in alike:
            P, h = _of_common(other, s)
            precision[np.ix_(s, s)] += P
            shift[s] += h
        found.append(replace(form, beta_precision=precision, beta_shift=shift))
    return found


def _of_common(form: FormTotals, s: npt.NDArray[np.intp]) -> tuple[Array, Array]:
    """Precision and shift of a form's coordinates s (of the intercept) with all else integrated out."""
    _, once = beta_moments(form.hyperprior / form.population_weight, form.model.prior)
    P, h = form.beta_precision, form.beta_shift
    u = np.setdiff1d(np.arange(h.size), s)
    gain = P[np.ix_(s, u)] @ inverse(P[np.ix_(u, u)] + once[np.ix_(u, u)])
    return symmetric(P[np.ix_(s, s)] - gain @ P[np.ix_(u, s)]), h[s] - gain @ h[u]
