r"""Ordered beta model for scores from 0 to 1, both ends included.

.. math:: P(0) = 1 - \sigma(\eta - k_0), \qquad P(1) = \sigma(\eta - k_1),

and with the remaining probability a score from Beta(mu phi, (1 - mu) phi), :math:`\mu = \sigma(\eta)`. The three
events are a graded response with thresholds :math:`k_0 < k_1` and are computed the same way (`concal.response.grm`);
the density inside is that of `concal.response.beta`. The kernels read the logit of the score, and -10,000 or +10,000
for the endpoints, far beyond the logit of any number inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from concal.errors import counted
from concal.response.base import Array, PopulationPrior, ResponseModel
from concal.response.beta import beta_expectations, beta_logit_moments, draw_inside, unit_remedy
from concal.response.beta_kernels import (
    SMALLEST_SHAPE,
    ordered_aim,
    ordered_curve,
    ordered_extra_terms,
    ordered_terms,
    precision_rows,
)
from concal.response.registry import register

_ENDPOINT = 1e4
_LARGEST = 20.0  # |k_0|, |k_1| beyond it are cut: products of two exponentials and the shapes still fit float32
_SMALLEST_WIDTH = 1e-12
FEW_ENDS = 10
FEW_INSIDE = 0.01
"""Share of the scores between the ends below which, and below one an item, they are next to none."""


class OrderedBetaTag(NamedTuple):
    """Compiled code dispatches on this; `endpoint` is what the kernels read for a score of 1, its negative for 0."""

    smallest_shape: float
    log_smallest_shape: float
    endpoint: float


@register(OrderedBetaTag, ordered_terms, ordered_extra_terms, ordered_curve, aim=ordered_aim)
@dataclass(frozen=True)
class OrderedBeta(ResponseModel):
    """A share from 0 to 1, endpoints included."""

    name: ClassVar[str] = "ordered_beta"

    @property
    def extras(self) -> tuple[str, ...]:
        """Precision, lower threshold, and the distance to the upper one."""
        return ("log_phi", "k_0", "log_width")

    @property
    def max_score(self) -> float:
        """One."""
        return 1.0

    @property
    def atoms(self) -> tuple[float, ...]:
        """Both ends."""
        return (0.0, 1.0)

    @property
    def prior(self) -> PopulationPrior:
        """Precision about 7; at eta = 0 about one score in eight at either end."""
        return PopulationPrior(mean=(0.0, 0.0, 2.0, -2.0, 1.4), sd=(1.0, 0.3, 0.5, 0.5, 0.3))

    def held(self, score: Array, n_items: int) -> dict[str, tuple[float, float]]:
        """Cut points with fewer scores beyond them than there are items: about seven logits out, one score in 1,000.

        Where next to no score lies between the ends, nothing tells the precision, nor the cut points from d: they are
        held together and around zero, as of a right-or-wrong item.
        """
        few = max(n_items, FEW_ENDS)
        found = {}
        if (score == 0).sum() < few:
            found["k_0"] = (-7.0, 1.0)
        if (score == 1).sum() < few:
            found["log_width"] = (2.2 if "k_0" not in found else 2.6, 0.3)  # nine and fourteen logits apart
        inside = score.size - (score == 0).sum() - (score == 1).sum()
        if not found and inside < min(few, FEW_INSIDE * score.size):
            # so near that one score in 1,000 would be between them
            return {"log_phi": (self.prior.mean[2], 0.5), "k_0": (0.0, 0.3), "log_width": (-5.5, 0.3)}
        return found

    @property
    def tag(self) -> OrderedBetaTag:
        """See the contract."""
        return OrderedBetaTag(SMALLEST_SHAPE, float(np.log(SMALLEST_SHAPE)), _ENDPOINT)

    def bad_scores(self, score: Array) -> npt.NDArray[np.bool_]:
        """Anything outside 0 to 1."""
        with np.errstate(invalid="ignore"):
            return ~((score >= 0) & (score <= 1))

    def score_rule(self) -> str:
        """For messages."""
        return "a number from 0 to 1"

    def remedy(self, bad: Array) -> str:
        """Scores beyond the ends have another unit."""
        return unit_remedy(bad)

    def doubts(self, score: Array, n_items: int) -> tuple[str, ...]:
        """Ends that next to nobody reached, or nothing between them: what they would tell is held by its prior."""
        held = self.held(score, n_items)
        if not held or not score.size:
            return ()
        if "log_phi" in held:
            inside = int(((score > 0) & (score < 1)).sum())
            said = f"only {counted(inside, 'score')}" if inside else "no score"
            return (f'{said} between 0 and 1: precision and cut points rest on their priors, model = "2pl" would do',)
        counts = {end: int((score == end).sum()) for name, end in (("k_0", 0), ("log_width", 1)) if name in held}
        if len(counts) == 2 and not any(counts.values()):
            return ('no score of exactly 0 or 1: the cut points rest on their priors, model = "beta" would do',)
        said = " and ".join(f"{counted(n, 'score') if n else 'no score'} of exactly {end}" for end, n in counts.items())
        cut = "its cut point is held by its prior" if len(counts) == 1 else "their cut points are held by their priors"
        only = "" if said.startswith("no") else "only "
        return (f"{only}{said}: {cut} until there are {max(n_items, FEW_ENDS)}",)

    def encode_score(self, score: Array) -> Array:
        """The logit of the score; -10,000 for 0 and 10,000 for 1."""
        inside = special.logit(np.clip(score, 0.0, 1.0))
        return np.asarray(np.clip(inside, -_ENDPOINT, _ENDPOINT), dtype=np.float64)

    def kernel_extras(self, xi: Array) -> Array:
        """See the row layout in `concal.response.beta_kernels`."""
        k_0, k_1 = _thresholds(xi)
        width = k_1 - k_0  # of the thresholds as cut, or the information would not be positive
        inside = -np.expm1(-width)
        rows = np.stack([np.exp(k_0), np.exp(k_1), k_0, k_1 + np.log(inside), 1.0 / np.expm1(width)], axis=-1)
        return np.concatenate([precision_rows(xi[..., 2]), rows], axis=-1)

    def extras_jacobian(self, xi: Array) -> Array:
        """k_1 = k_0 + exp(log_width)."""
        jacobian = np.broadcast_to(np.eye(3), (*xi.shape[:-1], 3, 3)).copy()
        jacobian[..., 2, 1] = 1.0
        jacobian[..., 2, 2] = np.exp(xi[..., 4])
        return jacobian

    @property
    def natural_extras(self) -> tuple[str, ...]:
        """Precision and both thresholds."""
        return ("phi", "k_0", "k_1")

    def natural_rule(self) -> str:
        """For messages."""
        return "a and phi above 0, k_0 below k_1, every number finite"

    def to_natural(self, xi: Array) -> Array:
        """Columns a, d, phi, k_0, k_1."""
        columns = [np.exp(xi[..., 1]), xi[..., 0], np.exp(xi[..., 2]), xi[..., 3], xi[..., 3] + np.exp(xi[..., 4])]
        return np.stack(columns, axis=-1)

    def from_natural(self, natural: Mapping[str, Array]) -> Array:
        """Xi from a, d, phi and k_0 < k_1."""
        width = natural["k_1"] - natural["k_0"]
        logs = (np.log(natural["a"]), np.log(natural["phi"]), np.log(width))
        return np.stack([natural["d"], logs[0], logs[1], natural["k_0"], logs[2]], axis=-1)

    def logit_moments(self, theta: Array, xi: Array) -> tuple[Array, Array]:
        """Those of the beta score inside: the cut points do not move it."""
        return beta_logit_moments(np.exp(xi[..., 1]) * (theta - xi[..., 0]), xi[..., 2])

    def bias_term(self, theta: Array, xi: Array) -> Array:
        r"""Of the events P(0), P(1) and w, one of them inside, and of the beta score there.

        The log-likelihood inside is log w plus that of the beta score, whose l' has mean zero, so

        .. math:: J = P_0' P_0'' / P_0 + P_1' P_1'' / P_1 + w' w'' / w + 2 w' I_b + w J_b .
        """
        a = np.exp(xi[..., 1])
        eta = a * (theta - xi[..., 0])
        k_0, k_1 = _thresholds(xi)
        above, below = special.expit(eta - k_0), special.expit(k_0 - eta)  # beyond the lower threshold, or not
        top, under = special.expit(eta - k_1), special.expit(k_1 - eta)
        ends = a**3 * (above**2 * below * (below - above) + under**2 * top * (under - top))
        inside = -np.expm1(k_0 - k_1) * above * under
        slope = a * (below - top)  # w' / w
        bend = slope**2 - a**2 * (above * below + top * under)  # w'' / w
        information, J = beta_expectations(eta, a, xi[..., 2])
        return np.asarray(ends + inside * (slope * bend + 2 * slope * information + J))

    def simulate(self, theta: Array, xi: Array, rng: np.random.Generator) -> Array:
        """Which event first, then a beta draw inside."""
        eta = np.exp(xi[..., 1]) * (theta - xi[..., 0])
        u = rng.random(theta.shape[0])
        inside = draw_inside(special.expit(eta), np.exp(xi[..., 2]), rng)
        at_one = u < special.expit(eta - xi[..., 3] - np.exp(xi[..., 4]))
        at_zero = u >= special.expit(eta - xi[..., 3])
        return np.where(at_one, 1.0, np.where(at_zero, 0.0, inside))


def _thresholds(xi: Array) -> tuple[Array, Array]:
    """k_0 and k_1, cut where the kernels cut them."""
    k_0 = np.clip(xi[..., 3], -_LARGEST, _LARGEST - _SMALLEST_WIDTH)
    return k_0, np.clip(xi[..., 3] + np.exp(xi[..., 4]), k_0 + _SMALLEST_WIDTH, _LARGEST)
