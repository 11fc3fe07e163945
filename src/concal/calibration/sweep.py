"""One sweep: every move of the sampler in its turn, in all chains."""

from __future__ import annotations

from collections.abc import Mapping

from concal.calibration.layout import Layout
from concal.calibration.moments import MomentSums
from concal.calibration.moves.beta import BetaMove
from concal.calibration.moves.correlation import CorrelationMove
from concal.calibration.moves.expansion import expand
from concal.calibration.moves.link import draw_links
from concal.calibration.moves.population import draw_abilities
from concal.calibration.moves.shared import move_shared
from concal.calibration.moves.sigma import SigmaMove
from concal.calibration.moves.strata import draw_family
from concal.calibration.moves.units import UnitSteps
from concal.calibration.saving import Part, Saving
from concal.calibration.state import State
from concal.calibration.streams import numbers_of
from concal.calibration.workers import Workers

NEWTON_START = 30
"""Sweeps in which units climb to where the posterior is."""
UNITS_ALONE = NEWTON_START // 3
"""Sweeps in which they find their places under the default population."""


class Sweep(Saving):
    """The moves of one layout, with what they learn in warm-up."""

    def __init__(self, layout: Layout, tau: float, seed: int, workers: Workers) -> None:
        self.layout, self.tau, self.seed = layout, tau, seed
        self.units = UnitSteps(layout, seed, workers)
        self.sigma = SigmaMove(layout)
        self.beta = BetaMove(layout)
        self.correlation = CorrelationMove(layout)

    def parts(self) -> Mapping[str, Part]:
        """See `concal.calibration.saving.Saving`."""
        return {"units": self.units, "sigma": self.sigma, "beta": self.beta, "correlation": self.correlation}

    def forget(self) -> None:
        """Learn anew what moves propose from; until then they go on with what they have."""
        for reference in (*self.sigma.references.values(), *self.beta.references, self.correlation.reference):
            reference.forget()
        for scaling in self.sigma.scalings.values():
            scaling.forget()
        for sketch in (*self.sigma.sketches, self.correlation.sketch):
            sketch.forget()

    def run(self, state: State, *, adapting: bool, moments: MomentSums | None = None) -> None:
        """Move everything once; `moments` takes in where the items were before, while moves adapt they learn."""
        units, layout = self.units, self.layout
        state.sweep += 1
        climbing, alone = state.sweep <= NEWTON_START, state.sweep <= UNITS_ALONE
        rng = numbers_of(self.seed, 1, state.sweep)
        units.items(state, climbing=climbing, moments=moments)
        if not alone:
            scale, shift = expand(layout, state, units.sums(state), self.tau, rng)
            units.rescale(state, scale, shift)
            for family in layout.families:  # of a guided group only to be reported
                draw_family(family, [state.groups[k] for k in family.members], self.tau, rng)
            draw_links(layout, state, rng)
            move_shared(units, state, [self.tau] * len(state.groups), rng)
            if not climbing:
                self.sigma.move(state, units, rng, adapting=adapting)
                self.beta.move(state, units, self.sigma.sketches, self.tau, rng, adapting=adapting)
        units.refresh(state)
        units.persons(state, climbing=climbing)
        if not alone:
            draw_abilities(layout, state, units.sums(state), rng)
            if not climbing:
                self.correlation.move(state, units, rng, adapting=adapting)
