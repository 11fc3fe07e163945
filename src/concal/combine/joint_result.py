"""What the joint consensus gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.combine.gaussian import symmetric
from concal.combine.mixture import ItemMixture
from concal.combine.posterior import JointPosterior, Layout
from concal.combine.result import Consensus, GroupConsensus
from concal.combine.robust import drifting
from concal.combine.sampler import Chains
from concal.combine.sigma_scale import sigma_root
from concal.combine.specification import GroupTotals
from concal.combine.summary import PeriodSummary
from concal.errors import first_few

Array = npt.NDArray[np.float64]


def joint_result(
    summaries: Sequence[PeriodSummary],
    united: Mapping[str, GroupTotals],
    posterior: JointPosterior,
    mixture: ItemMixture,
    chains: Chains,
    tilted: pl.DataFrame,
    warnings: Sequence[str],
    *,
    keep_draws: bool,
) -> Consensus:
    """Items, populations and links over the draws, with what there is to doubt."""
    theta = chains.theta.reshape(-1, chains.theta.shape[-1])
    layout = posterior.layout
    groups, answered, fallen = {}, 0, 0
    for name, total in united.items():
        factors = posterior.groups[name]
        mean, covariance = mixture.moments(name)
        seen = np.diff(factors.start) > 0
        source = np.where(factors.active, "consensus", np.where(seen, "fallback", "predicted"))
        answered, fallen = answered + int(seen.sum()), fallen + int((seen & ~factors.active).sum())
        beta = theta[:, layout.beta[name]]
        roots = sigma_root(theta[:, layout.sigma[name]], factors.p)
        groups[name] = GroupConsensus(
            name,
            total.dimension,
            total.model,
            total.item_ids,
            total.features,
            total.X,
            mean,
            covariance,
            source,
            total.n_responses,
            total.n_periods,
            beta.mean(axis=0).reshape(-1, factors.p),
            symmetric((roots @ np.swapaxes(roots, 1, 2)).mean(axis=0)),
            symmetric(np.atleast_2d(np.cov(beta, rowvar=False))) if theta.shape[0] > 1 else None,
        )
    doubts = [*warnings, *(w for t in united.values() for w in t.warnings)]
    plain = [s.period for s in summaries if any(g.curvature is None for g in s.groups.values())]
    if plain:
        doubts.append(
            f"summaries of {first_few(plain)} are of an older kind and their factors were not refitted; "
            "`concal add --replace` renews a period"
        )
    if chains.max_rhat > 1.1:
        doubts.append(f"joint sampler: split R-hat is {chains.max_rhat:.2f}; ask for more draws (JointOptions.draws)")
    n_drifting = sum(v.size for v in drifting(posterior).values())
    if n_drifting:
        doubts.append(f"{n_drifting} item-by-period factors look drifted and do not inform the links")
    return Consensus(
        "joint",
        summaries[0].reference,
        summaries[0].dimensions,
        tuple(s.period for s in summaries),
        groups,
        links=_links(theta, layout, summaries),
        fallback_share=fallen / answered if answered else 0.0,
        diagnostics=tilted,
        joint=mixture.draws() if keep_draws else None,
        warnings=tuple(doubts),
    )


def _links(theta: Array, layout: Layout, summaries: Sequence[PeriodSummary]) -> pl.DataFrame:
    rows = []
    for k, dimension in enumerate(summaries[0].dimensions):
        links = theta[:, layout.link(k)].reshape(theta.shape[0], -1, 2)
        for m, summary in enumerate(summaries):
            A, B = np.exp(links[:, m, 0]), links[:, m, 1]
            rows.append(
                {
                    "period": summary.period,
                    "dimension": dimension,
                    "A_mean": float(A.mean()),
                    "A_sd": float(A.std()),
                    "B_mean": float(B.mean()),
                    "B_sd": float(B.std()),
                }
            )
    return pl.DataFrame(rows).sort("period", maintain_order=True)
