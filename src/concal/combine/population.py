r"""Population layer: one (beta*, Sigma*) from the periods' population posteriors, hyperprior counted once.

.. math:: \beta^* = \Big(\sum_m V_m^{-1} - (M-1) T\Big)^{-1} \sum_m V_m^{-1} b_m

Sigma* is the item-count-weighted mean of the periods' Sigma in log-Cholesky coordinates. The hyperprior T is nearly
flat and is not moved by the link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.combine.form_totals import FormTotals
from concal.combine.gaussian import feature_quadratic, from_log_cholesky, inverse, symmetric
from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]
NO_WEIGHT = 1e-9
"""Weights below it are what rounding leaves of retracted periods."""


@dataclass(frozen=True)
class Population:
    """Consensus population of a group.

    Attributes
    ----------
    beta : (features, p)
    beta_covariance : (features * p, same)
    sigma : (p, p)
    plug_in : bool
        Predict with Sigma alone, as the paper does, instead of adding the uncertainty of beta.
    """

    beta: Array
    beta_covariance: Array
    sigma: Array
    plug_in: bool = False

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n, p) and covariance (n, p, p) of xi for items with features X."""
        mean = X @ self.beta
        p = self.sigma.shape[0]
        if self.plug_in:
            return mean, np.broadcast_to(self.sigma, (X.shape[0], p, p)).copy()
        return mean, self.sigma + feature_quadratic(X, self.beta_covariance, p)


def consensus_population(form: FormTotals, *, literal: bool = False) -> Population:
    """Beta* and Sigma* of one form of a group."""
    p = len(form.model.parameters)
    if form.periods and form.period_weight <= NO_WEIGHT:
        raise DataError(
            f"group {form.name!r}: all its periods ({first_few(form.periods)}) were calibrated with priors from the "
            'bank, so nothing tells its population; replace one of them, added with calibration.prior = "population"'
        )
    if form.item_weight <= 0 or form.period_weight <= 0:
        raise DataError(f"group {form.name!r}: no period has an item with a response; its population is unknown")
    once = np.asarray(np.kron(form.hyperprior / form.period_weight, np.eye(p)), dtype=np.float64)
    precision = _at_least_hyperprior(symmetric(form.beta_precision + once), once, form.name)
    beta_covariance = inverse(precision)
    beta = (beta_covariance @ form.beta_shift).reshape(-1, p)
    coordinates = (form.sigma_draws if literal else form.sigma) / form.item_weight
    return Population(beta, beta_covariance, from_log_cholesky(coordinates, p), plug_in=literal)


def _at_least_hyperprior(precision: Array, once: Array, name: str) -> Array:
    """Keep directions nobody has information about at (half) the hyperprior, where draw noise took them lower."""
    try:
        np.linalg.cholesky(precision - 0.5 * once)
        return precision
    except np.linalg.LinAlgError:
        pass
    try:
        root = np.linalg.cholesky(once)
    except np.linalg.LinAlgError:
        raise DataError(
            f"group {name!r}: the combined precision of beta is not positive definite; a feature is not identified "
            "by any period and has no hyperprior"
        ) from None
    unroot = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(symmetric(unroot @ precision @ unroot.T))
    basis = root @ vectors
    return symmetric((basis * np.maximum(values, 0.5)) @ basis.T)
