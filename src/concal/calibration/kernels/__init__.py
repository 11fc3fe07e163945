r"""Compiled kernels: passes over responses and what stands for them, a unit's Newton-Metropolis step, carrying units.

All arrays end in a lane axis: lane c belongs to chain c. A unit with n coordinates has the accumulator

    [log-likelihood, gradient (n), information (n(n+1)/2, lower triangle by rows)]

which the passes fill and `propose` / `accept` read. Every unit draws its random numbers from a counter
(seed, unit, sweep, stream), so results do not depend on how units are spread over threads.

Sums run in float32 over eight responses and in float64 beyond: popular items lose nothing.
"""

from concal.calibration.kernels.carry import carry
from concal.calibration.kernels.log_likelihood import item_log_likelihood, person_log_likelihood
from concal.calibration.kernels.moments import add_moments
from concal.calibration.kernels.newton import Priors, Step, accept, propose
from concal.calibration.kernels.others import node_log_likelihoods
from concal.calibration.kernels.passes import item_pass, item_pass_extras, person_pass
from concal.calibration.kernels.quadratics import item_quadratics, item_quadratics_value, sum_by_item, sum_by_period
from concal.calibration.kernels.rows import ability_sums, add_abilities, add_products, rescale, take_lanes
from concal.calibration.kernels.tables import add_table_values, table_pass, table_pass_extras
from concal.compiler import LANES

__all__ = [
    "LANES",
    "Priors",
    "Step",
    "ability_sums",
    "accept",
    "add_abilities",
    "add_moments",
    "add_products",
    "add_table_values",
    "carry",
    "item_log_likelihood",
    "item_pass",
    "item_pass_extras",
    "item_quadratics",
    "item_quadratics_value",
    "node_log_likelihoods",
    "person_log_likelihood",
    "person_pass",
    "propose",
    "rescale",
    "sum_by_item",
    "sum_by_period",
    "table_pass",
    "table_pass_extras",
    "take_lanes",
]
