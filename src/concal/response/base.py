r"""The contract of a response model, and what every model shares.

Every item vector xi starts with d (location, on the trait metric) and log a; all further coordinates ("extras") live
on the logit metric and do not move when the trait metric changes. With

.. math:: \eta = a (\theta - d)

a model is a likelihood of the score given :math:`\eta` and the extras. That is all a new model has to write down
(log-likelihood terms, expected score, simulation); derivatives in d, log a and theta follow here by the chain rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Slopes = Literal["free", "equal"]
_STEP = 1e-4  # of the difference that gives second derivatives: error about 1e-8 of truncation and of rounding


@dataclass(frozen=True)
class PopulationPrior:
    """What items of the model are typically like, per coordinate of xi: the priors of a group's population model.

    Attributes
    ----------
    mean : tuple of float
        The prior mean of the population's intercept, where a calibration starts too. That of d is zero, the origin of
        the abilities.
    sd : tuple of float
        Typical residual SD of each coordinate: the scale of the half-t prior on sqrt(diag(Sigma)), and the unit of the
        coefficients' prior.
    """

    mean: tuple[float, ...]
    sd: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.mean[0] != 0.0 or min(self.sd) <= 0.0:
            raise ValueError(f"a population prior has mean zero for d and positive sd, not {self.mean} and {self.sd}")


@dataclass(frozen=True)
class ResponseModel(ABC):
    """One response format: how a score comes about from eta = a (theta - d) and the item's extras.

    Subclasses are small frozen objects (a polytomous model carries its number of categories). They define the class
    attribute `name`, the members below, and three kernel functions in the arithmetic of
    `concal.response.arithmetic` (see `concal.response.registry.register`).
    """

    name: ClassVar[str]
    polytomous: ClassVar[bool] = False  # takes a number of categories
    known_as: ClassVar[Mapping[tuple[str, ...], str]] = {}  # what the field calls it with these equal
    slopes: Slopes = field(default="free", kw_only=True)  # every item's own, or one for the group

    @property
    @abstractmethod
    def extras(self) -> tuple[str, ...]:
        """Names of the coordinates after d and log a."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of all coordinates of xi, ``("d", "log_a", *extras)``."""
        return ("d", "log_a", *self.extras)

    @property
    def shared(self) -> tuple[int, ...]:
        """Coordinates of xi that belong to the group: the same number for each of its items."""
        return (1,) if self.slopes == "equal" else ()

    @property
    def kind(self) -> str:
        """The model's name with what its items have in common, such as 1pl: what a group keeps for good."""
        equal = tuple(name for name in ("slopes", "steps") if getattr(self, name, "free") == "equal")
        said = f"{self.name} with equal {' and '.join(equal)}" if equal else self.name
        return self.known_as.get(equal, said)

    @property
    @abstractmethod
    def max_score(self) -> float:
        """Largest score an item can give; expected scores are divided by it."""

    @property
    def n_categories(self) -> int | None:
        """Number of score categories, None for continuous scores."""
        return None

    @property
    def atoms(self) -> tuple[float, ...]:
        """Scores with a probability of their own: a response table counts each of them."""
        return tuple(float(k) for k in range(self.n_categories or 0))

    @property
    def levels(self) -> int:
        """Into how many classes a response table sorts the scores that are no atoms; none for categories."""
        return 0 if self.n_categories else 4

    @property
    @abstractmethod
    def prior(self) -> PopulationPrior:
        """Sensible weak population prior."""

    @property
    @abstractmethod
    def tag(self) -> NamedTuple:
        """What compiled code dispatches on: an instance of a NamedTuple class of this model's own module."""

    @abstractmethod
    def bad_scores(self, score: Array) -> npt.NDArray[np.bool_]:
        """Which scores this model cannot take (NaN and infinities included)."""

    @abstractmethod
    def score_rule(self) -> str:
        """What a score must be, in words for an error message."""

    def remedy(self, bad: Array) -> str:
        """What may be done about scores it cannot take, in words for an error message; empty: nothing special."""
        return ""

    def doubts(self, score: Array, n_items: int) -> tuple[str, ...]:
        """What the scores of a whole group leave open, in words; `score` (n,) are good scores of so many items."""
        return ()

    def held(self, score: Array, n_items: int) -> Mapping[str, tuple[float, float]]:
        """Coordinates that a group's scores leave open, each with the mean and SD that hold it in every item.

        A cut point that next to nobody is beyond is only known to be far out: its items, their population and its
        spread would follow each other without end. Each item then has one more observation, N(mean, SD), of it.
        """
        return {}

    def encode_score(self, score: Array) -> Array:
        """The one number per response the kernels read (identity but for models that transform)."""
        return score

    @abstractmethod
    def kernel_extras(self, xi: Array) -> Array:
        """The extras as the kernels read them, from xi with shape (..., p) to (..., n_kernel_extras).

        Kernel parameters of an item are the row ``(a, d, *kernel_extras)``.
        """

    def extras_jacobian(self, xi: Array) -> Array:
        """d(kernel coordinates psi)/d(extras), shape (..., q, q), at xi; the identity unless a model says otherwise.

        `extra_terms` may differentiate with respect to convenient coordinates psi (say, thresholds); this maps those
        derivatives back to xi's extras: grad_extras = J' grad_psi, information = J' I_psi J.
        """
        q = len(self.extras)
        return np.broadcast_to(np.eye(q), (*xi.shape[:-1], q, q))

    def expected_score(self, theta: Array, xi: Array) -> Array:
        """E_j(theta) in [0, 1]: theta (...,) against xi (..., p), broadcasting."""
        return self.expected_curve(theta, xi)[0]

    def expected_curve(self, theta: Array, xi: Array) -> tuple[Array, Array]:
        """E_j(theta) and its derivative in eta = a (theta - d)."""
        from concal.response.registry import kernels

        par = np.moveaxis(self.kernel_parameters(np.asarray(xi, dtype=np.float64)), -1, 0)
        eta = par[0] * (theta - par[1])
        value, slope = kernels(self.tag).curve(self.tag, eta, par)
        return value, slope

    @abstractmethod
    def simulate(self, theta: Array, xi: Array, rng: np.random.Generator) -> Array:
        """Scores for abilities theta (n,) on items xi (n, p)."""

    def kernel_parameters(self, xi: Array) -> Array:
        """Rows (a, d, *kernel extras) the kernels read, from xi (..., p)."""
        return np.concatenate([np.exp(xi[..., 1:2]), xi[..., 0:1], self.kernel_extras(xi)], axis=-1)

    @property
    def natural_extras(self) -> tuple[str, ...]:
        """Names of the natural parameters after a and d; the extras themselves unless a model says otherwise."""
        return self.extras

    @property
    def natural_parameters(self) -> tuple[str, ...]:
        """Names people write down: ``("a", "d", *natural_extras)``; see `concal.response.natural`."""
        return ("a", "d", *self.natural_extras)

    def natural_rule(self) -> str:
        """What natural parameters must satisfy, in words for an error message."""
        return "a above 0, every number finite"

    def to_natural(self, xi: Array) -> Array:
        """Natural parameters, a column per name of `natural_parameters`, from xi (..., p)."""
        return np.concatenate([np.exp(xi[..., 1:2]), xi[..., 0:1], xi[..., 2:]], axis=-1)

    def from_natural(self, natural: Mapping[str, Array]) -> Array:
        """Xi (n, p) from natural parameters by name, each (n,); impossible values give values that are not finite."""
        columns = [natural["d"], np.log(natural["a"]), *(natural[name] for name in self.natural_extras)]
        return np.stack(columns, axis=-1)

    def log_likelihood(self, score: Array, theta: Array, xi: Array) -> Array:
        """Log-likelihood of raw scores, elementwise."""
        return self.derivatives(score, theta, xi).log_likelihood

    def derivatives(self, score: Array, theta: Array, xi: Array) -> Derivatives:
        """Log-likelihood with first derivatives and expected information in theta and in xi (reference, float64).

        Parameters
        ----------
        score, theta : (n,) arrays
        xi : (n, p) array
        """
        from concal.response.registry import kernels

        xi = np.asarray(xi, dtype=np.float64)
        score, theta = np.asarray(score, dtype=np.float64), np.asarray(theta, dtype=np.float64)
        n, q = theta.shape[0], len(self.extras)
        par = np.moveaxis(self.kernel_parameters(xi), -1, 0)
        a = par[0]
        eta = a * (theta - par[1])
        out = np.zeros((n_extra_outputs(q), n))
        ll, g, w = kernels(self.tag).extra_terms(self.tag, self.encode_score(score), eta, par, out)
        return _chain_rule(a, eta, ll, g, w, out, self.extras_jacobian(xi))

    def logit_moments(self, theta: Array, xi: Array) -> tuple[Array, Array]:
        """Mean and variance of the logit of a score between the atoms (divided by the largest), given the ability.

        Theta (...,) against xi (..., p), broadcasting. Integrals over such scores put their grid where these say;
        models whose scores all have a probability of their own have none.
        """
        raise NotImplementedError(f"{self.name} must give logit_moments if it has scores that are no atoms")

    def bias_term(self, theta: Array, xi: Array) -> Array:
        r"""What makes maximum likelihood biased, :math:`J = E[l'(l'^2 + l'')]` (n,), at theta (n,) for items xi (n, p).

        With l the log-likelihood of a score, primes for derivatives in theta. Over scores with a probability P of their
        own it is :math:`\sum P' P'' / P`, summed here; a model with other scores gives its own (for beta scores it is
        known in closed form, while no integral over numbers reaches the ends where small shapes put their mass).
        """
        if self.levels:
            raise NotImplementedError(f"{self.name} has scores that are no atoms and must give its own bias_term")
        score = np.asarray(self.atoms, dtype=np.float64)
        n, m = theta.shape[0], score.size
        scores, items = np.tile(score, n), np.repeat(np.asarray(xi, dtype=np.float64), m, axis=0)

        def gradient(shift: float) -> tuple[Array, Array]:
            found = self.derivatives(scores, np.repeat(theta + shift, m), items)
            return found.theta_gradient.reshape(n, m), found.log_likelihood.reshape(n, m)

        g, ll = gradient(0.0)
        curvature = (gradient(_STEP)[0] - gradient(-_STEP)[0]) / (2 * _STEP)
        return np.asarray((np.exp(ll) * g * (g * g + curvature)).sum(axis=1))


def not_a_category(score: Array, n_categories: int) -> npt.NDArray[np.bool_]:
    """Which scores are not one of the whole numbers 0..n_categories - 1."""
    with np.errstate(invalid="ignore"):
        good: npt.NDArray[np.bool_] = (score >= 0) & (score < n_categories) & (score == np.floor(score))
    return ~good


class Derivatives(NamedTuple):
    """Log-likelihood with first derivatives and expected information, elementwise over n responses."""

    log_likelihood: Array
    theta_gradient: Array
    theta_information: Array
    xi_gradient: Array  # (n, p)
    xi_information: Array  # (n, p, p)


def n_extra_outputs(q: int) -> int:
    """Rows `extra_terms` writes for q extras: gradient (q), information with eta (q), information (q(q+1)/2)."""
    return 2 * q + q * (q + 1) // 2


def _chain_rule(a: Array, eta: Array, ll: Array, g: Array, w: Array, out: Array, jacobian: Array) -> Derivatives:
    r"""From derivatives in (eta, psi) to theta and xi: d eta = a d theta, d eta = -a dd, d eta = eta d log a."""
    n, q = eta.shape[0], jacobian.shape[-1]
    p = q + 2
    gradient, information = np.zeros((n, p)), np.zeros((n, p, p))
    slope = np.stack([-a, eta], axis=-1)
    gradient[:, :2] = slope * g[:, None]
    information[:, :2, :2] = slope[:, :, None] * slope[:, None, :] * w[:, None, None]
    if q:
        g_psi, v_psi = out[:q].T, out[q : 2 * q].T
        W = np.zeros((n, q, q))
        W[:, *np.tril_indices(q)] = out[2 * q :].T
        W = W + np.swapaxes(np.tril(W, -1), -1, -2)
        gradient[:, 2:] = np.einsum("nkl,nk->nl", jacobian, g_psi)
        cross = slope[:, :, None] * np.einsum("nkl,nk->nl", jacobian, v_psi)[:, None, :]
        information[:, :2, 2:] = cross
        information[:, 2:, :2] = np.swapaxes(cross, -1, -2)
        information[:, 2:, 2:] = np.einsum("nka,nkl,nlb->nab", jacobian, W, jacobian)
    return Derivatives(ll, a * g, a * a * w, gradient, information)
