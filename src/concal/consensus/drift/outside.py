r"""Items whose consensus lies outside the range of their periods by more than the uncertainty allows.

A consensus is a compromise: on each parameter it should lie between its periods, as far as both are known. With
:math:`m^*, s^*` the consensus and :math:`m_k, s_k` the nearest of the periods' own posteriors on the reference metric,
it is outside by

.. math:: z = \frac{|m^* - m_k|}{\sqrt{s^{*2} + s_k^2}}

where :math:`m^*` is beyond all of them. Few responses pull every period towards the population, so several together
rightly go beyond each; their wide :math:`s_k` allow for that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from concal import metric
from concal.consensus.drift.gather import seen_items
from concal.consensus.factors.period import Placed
from concal.consensus.links import InForce, in_force
from concal.consensus.result import Consensus, GroupConsensus

ALLOWED = 3.0
"""Standard errors; two posteriors that share their responses are closer than independent ones would be."""


def outside_range(placed: Sequence[Placed], consensus: Consensus) -> pl.DataFrame:
    """item_id, group, parameter, mean, lowest, highest and z of what lies outside, worst first."""
    links = in_force(consensus.links)
    frames = [frame for group in consensus.groups.values() if (frame := _group(placed, group, links)) is not None]
    if not frames:
        return pl.DataFrame()
    return pl.concat(frames).sort("z", descending=True, maintain_order=True)


def _group(placed: Sequence[Placed], known: GroupConsensus, links: InForce) -> pl.DataFrame | None:
    n, p = known.mean.shape
    low, high, z = np.full((n, p), np.inf), np.full((n, p), -np.inf), np.full((n, p), np.inf)
    seen = np.zeros(n, dtype=bool)
    for _, group, own, item, A, B in seen_items(placed, known, links):
        mean = metric.move_items(group.mean[own], A, B)
        sd = np.sqrt(np.diagonal(metric.move_item_covariance(group.covariance[own], A), axis1=1, axis2=2))
        low[item], high[item] = np.minimum(low[item], mean), np.maximum(high[item], mean)
        z[item] = np.minimum(z[item], np.abs(known.mean[item] - mean) / np.hypot(known.sd[item], sd))
        seen[item] = True
    beyond = (known.mean < low) | (known.mean > high)
    rows, columns = np.nonzero(beyond & seen[:, None] & (z > ALLOWED))
    if not rows.size:
        return None
    return pl.DataFrame(
        {
            "item_id": [known.item_ids[j] for j in rows],
            "group": [known.name] * rows.size,
            "parameter": [known.model.parameters[k] for k in columns],
            "mean": known.mean[rows, columns],
            "lowest": low[rows, columns],
            "highest": high[rows, columns],
            "z": z[rows, columns],
        }
    )
