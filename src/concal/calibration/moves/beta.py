r"""Moves of beta with all items of the group carried along (`concal.calibration.moves.carrying`).

Given the items, beta can move by no more than :math:`\Sigma_{cc}^{1/2}` over the root of their number. Where the
responses say little about a coordinate (guessing of a 3pl; slopes of items with a handful of responses), items follow
beta and beta follows the items: with 77 items of 3pl the intercept of logit c had 18 effective draws of 24,000. There
beta moves with its items, after its Gibbs step, as Sigma does; what hears the responses well is left to Gibbs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.family import HEAD
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.matrices import inverse
from concal.calibration.moves.carrying import LEARN_EVERY, SMALL, Reference, Sketch, accepted, carry_items
from concal.calibration.moves.units import UnitSteps
from concal.calibration.saving import Part, Saved, Saving
from concal.calibration.state import GroupState, State, pin

Array = npt.NDArray[np.float64]
MOSTLY, HALF = 0.75, 0.5
"""Share of the population in the items' precision, on average: in a small group, and in any group where it is above the
first in some coordinate beyond d and log a, beta of all coordinates above the second moves with the items. Slopes of
sparse items alone (six responses each, a share of .6 to .8) move so in small groups only: with 40 items a group and 400
examinees eight periods took 780 sweeps on average instead of 1,417; with 670 a group moving them saved none."""
MOST_COEFFICIENTS = 24
"""One proposal for all; beyond it the intercepts alone move."""
SMALL_GROUP_MOVES = 4


class BetaProposal(NamedTuple):
    """A proposed beta of a group for every lane, its items with it, and the log acceptance ratio (LANES,)."""

    beta: Array
    mean: Array
    xi: Array
    ll: Array
    log_ratio: Array


class BetaMove(Saving):
    """Moves beta of those coordinates that hear little of the responses, group by group.

    Coordinates are chosen in warm-up, whenever the reference is learned, and then stay. Strata share the beta of their
    d and log a: theirs is left to Gibbs.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        alone = {f.lead for f in layout.families if len(f.members) == 1}
        self.may = [
            () if g.guide is not None else tuple(c for c in g.free.tolist() if c >= HEAD or k in alone)
            for k, g in enumerate(layout.groups)
        ]
        self.which = [np.zeros((g.design.X.shape[1], g.p), dtype=bool) for g in layout.groups]
        self.references = [Reference(0) for _ in layout.groups]

    def move(
        self, state: State, steps: UnitSteps, sketches: list[Sketch], tau: float, rng: np.random.Generator, *,
        adapting: bool,
    ) -> None:  # fmt: skip
        """Move every group's; while adapting also learn. The sketches are those Sigma moves by."""
        for k, g in enumerate(self.layout.groups):
            reference = self.references[k]
            times = SMALL_GROUP_MOVES if g.n_items < SMALL else 1
            for _ in range(times if reference.ready and self.which[k].any() else 0):
                new = self.propose(k, state, steps, sketches[k], tau, rng)
                yes = accepted(new.log_ratio, rng)
                self._accept(k, new, yes, state, steps)
                if adapting:
                    reference.adapt(yes)
            if adapting and self.may[k]:
                self._remember(k, g, state.groups[k], sketches[k])

    def _remember(self, k: int, g: GroupLayout, s: GroupState, sketch: Sketch) -> None:
        """What this sweep tells the reference; now and then coordinates are chosen and it is made anew."""
        reference = self.references[k]
        reference.history.append(np.moveaxis(s.beta, 2, 0).reshape(LANES, -1).copy())
        if len(reference.history) % LEARN_EVERY:
            return
        share = prior_share(g, s, sketch)
        hardly = g.n_items < SMALL or any(share[c] > MOSTLY for c in self.may[k] if c >= HEAD)
        coordinates = [c for c in self.may[k] if hardly and share[c] > HALF]
        features = self.which[k].shape[0]
        self.which[k] = np.zeros_like(self.which[k])
        self.which[k][: features if len(coordinates) * features <= MOST_COEFFICIENTS else 1, coordinates] = True
        if coordinates:
            reference.learn(self.which[k].ravel())

    def propose(
        self, k: int, state: State, steps: UnitSteps, sketch: Sketch, tau: float, rng: np.random.Generator
    ) -> BetaProposal:
        """A new beta of group k, its items carried along."""
        g, s, which = self.layout.groups[k], state.groups[k], self.which[k]
        old = s.beta[which].T  # (LANES, coefficients)
        drawn, ratio = self.references[k].propose(old, rng)
        beta = s.beta.copy()
        beta[which] = drawn.T
        mean, precision = g.predicted(beta), inverse(s.sigma)
        under = steps.prior_under(k, precision, s.mean), steps.prior_under(k, precision, mean)
        carried, prior = carry_items(state, steps, {k: sketch}, {k: under})[k], g.beta_prior(tau)
        ratio = ratio + prior.log_density(beta) - prior.log_density(s.beta)
        ratio = ratio + np.sum(carried.places, axis=0) + np.sum(carried.likelihoods, axis=0)
        return BetaProposal(beta, mean, carried.xi, carried.ll, ratio)

    def _accept(self, k: int, new: BetaProposal, yes: npt.NDArray[np.bool_], state: State, steps: UnitSteps) -> None:
        s = state.groups[k]
        s.beta, s.mean, s.xi = (
            np.where(yes, to, now) for to, now in ((new.beta, s.beta), (new.mean, s.mean), (new.xi, s.xi))
        )
        pin(self.layout.groups[k], s)
        steps.item_ll[k] = np.where(yes, new.ll, steps.item_ll[k])

    def save(self) -> Saved:
        """See `concal.calibration.saving.Part`."""
        return super().save() | {f"which{k}": which for k, which in enumerate(self.which)}

    def load(self, saved: Saved) -> None:
        """See `concal.calibration.saving.Part`."""
        super().load(saved)
        self.which = [saved[f"which{k}"] for k in range(len(self.which))]

    def parts(self) -> Mapping[str, Part]:
        """See `concal.calibration.saving.Saving`."""
        return {f"reference{k}": r for k, r in enumerate(self.references)}


def prior_share(g: GroupLayout, s: GroupState, sketch: Sketch) -> Array:
    """Share of the population in the precision of each coordinate, over items and lanes, (p,)."""
    precision = np.diagonal(inverse(s.sigma), axis1=0, axis2=1).T  # (p, LANES)
    own = np.array([c * (c + 3) // 2 for c in range(g.p)])
    information = sketch.information[:, own].astype(np.float64)
    return np.asarray((precision / (precision + np.maximum(information, 0.0)[:, :, None])).mean(axis=(0, 2)))
