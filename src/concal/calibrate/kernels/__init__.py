r"""Compiled kernels: passes over responses, the Newton-Metropolis step of a unit, carrying units along.

All arrays end in a lane axis: lane c belongs to chain c. A unit with n coordinates has the accumulator

    [log-likelihood, gradient (n), information (n(n+1)/2, lower triangle by rows)]

which the passes fill and `propose` / `accept` read. Every unit draws its random numbers from a counter
(seed, unit, sweep, stream), so results do not depend on how units are spread over threads.

Sums run in float32 over eight responses and in float64 beyond: popular items lose nothing.
"""

from concal.calibrate.kernels.carry import carry
from concal.calibrate.kernels.gradients import add_gradients
from concal.calibrate.kernels.log_likelihood import item_log_likelihood, person_log_likelihood
from concal.calibrate.kernels.newton import accept, propose
from concal.calibrate.kernels.passes import item_pass, item_pass_extras, person_pass
from concal.calibrate.kernels.rows import ability_sums, add_abilities, rescale, take_lanes

__all__ = [
    "ability_sums",
    "accept",
    "add_abilities",
    "add_gradients",
    "carry",
    "item_log_likelihood",
    "item_pass",
    "item_pass_extras",
    "person_log_likelihood",
    "person_pass",
    "propose",
    "rescale",
    "take_lanes",
]
