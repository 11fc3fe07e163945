"""The joint consensus: links, populations and items estimated together from the periods' likelihood factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.combine.bounded import CEILINGS
from concal.combine.factors import GroupFactors, arrange_factors
from concal.combine.joint_result import joint_result
from concal.combine.joint_setup import identified, set_up
from concal.combine.mixture import ItemMixture
from concal.combine.newton import Mode, find_mode
from concal.combine.posterior import (
    Evaluation,
    JointPosterior,
    evaluate,
    make_buffers,
    with_weights,
)
from concal.combine.result import Consensus
from concal.combine.robust import robust_weights
from concal.combine.sampler import Chains, sample_joint, sample_laplace
from concal.combine.specification import GroupTotals, NewItems, unite_forms
from concal.combine.summary import PeriodSummary
from concal.combine.tilting import tilt_factors, tilt_together
from concal.combine.totals import sum_periods
from concal.errors import ConvergenceError, DataError
from concal.spec import ConsensusSpec

Array = npt.NDArray[np.float64]
Tell = Callable[[float, str], None]
"""Hears the share of the work that is done and what is going on."""

MODE_SHARE = 0.3  # of the time, about; the rest is sampling


@dataclass(frozen=True)
class JointOptions:
    """How the joint consensus is computed.

    Attributes
    ----------
    draws : int or None
        Draws of links and population; None: between 100 and 800, fewer for larger banks.
    sampler : "hmc" or "laplace"
        Exact sampling of the marginal posterior, or the Gaussian at its mode.
    robust : bool
        Keep item-by-period factors that look like drift from pulling the links.
    fixed_links : bool
        Take the links' means as known.
    fixed_population : dict of group -> (beta, Sigma)
        Populations that are known.
    keep_draws : bool
        Keep joint draws across items in the result.
    """

    draws: int | None = None
    sampler: str = "hmc"
    robust: bool = True
    fixed_links: bool = False
    fixed_population: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)
    keep_draws: bool = True


def combine_jointly(
    summaries: Sequence[PeriodSummary],
    *,
    spec: ConsensusSpec,
    options: JointOptions | None = None,
    items: Mapping[str, NewItems] | None = None,
    progress: Tell | None = None,
) -> Consensus:
    """Joint consensus of several periods.

    Parameters
    ----------
    summaries : sequence of PeriodSummary
        Oldest first. Periods that were not linked are placed by the items they share with the others.
    progress : function (share done, message)
    """
    options = options or JointOptions()
    tell = progress or (lambda share, message: None)
    if options.sampler not in ("hmc", "laplace"):
        raise DataError(f'sampler must be "hmc" or "laplace", not {options.sampler!r}')
    totals = sum_periods(summaries, spec.half_life, need_links=False)
    order = {m: i for i, m in enumerate(totals.periods)}
    united = {
        name: unite_forms(forms, order, (items or {}).get(name), totals.metric_of(forms[0].dimension))
        for name, forms in totals.groups.items()
    }
    groups = arrange_factors(summaries, united, [totals.weights[s.period] for s in summaries])
    posterior, together, mode, tilted, doubts = _tilted_mode(summaries, united, groups, options, spec.tilt, tell)
    mixture, chains = _sample(posterior, together, mode, options, spec.seed, tell)
    doubts = [*totals.warnings, *doubts]
    return joint_result(summaries, united, posterior, mixture, chains, tilted, doubts, keep_draws=options.keep_draws)


def _tilted_mode(
    summaries: Sequence[PeriodSummary],
    united: Mapping[str, GroupTotals],
    groups: Mapping[str, GroupFactors],
    options: JointOptions,
    passes: int,
    tell: Tell,
) -> tuple[JointPosterior, JointPosterior, Mode, pl.DataFrame, list[str]]:
    """Mode of the posterior with tilted factors, factors that do not bound mended as little as will do.

    The second posterior has the factors that items' own moments come from.
    """
    for ceiling in CEILINGS:
        try:
            tell(0.0, "searching for the mode")
            posterior, theta = set_up(
                summaries,
                united,
                groups,
                ceiling,
                fixed_links=options.fixed_links,
                fixed_population=options.fixed_population,
            )
            posterior, mode = _fit(posterior, theta, options)
            tilted, base = pl.DataFrame(), posterior
            for k in range(passes):
                tell(MODE_SHARE * (k + 1) / (passes + 1), f"refitting factors, pass {k + 1} of {passes}")
                refined = tilt_factors(posterior, base, mode, summaries)
                posterior, tilted = identified(refined.posterior, mode.theta, ceiling), refined.table
                posterior, mode = _fit(posterior, mode.theta, options)
            together = tilt_together(posterior, base, mode, summaries) if passes else posterior
        except ConvergenceError:
            if ceiling == CEILINGS[-1]:
                raise
            continue
        break
    doubts = []
    if ceiling > 0.0:
        doubts.append(
            "some items pull hard on little information; their factors were strengthened to find the mode, which makes "
            "posteriors of hardly answered items a little too narrow"
        )
    return posterior, together, mode, tilted, doubts


def _fit(posterior: JointPosterior, theta: Array, options: JointOptions) -> tuple[JointPosterior, Mode]:
    """Mode, with drifting factors weighted down: weights at the start links (already robust), then twice more."""
    if not options.robust:
        return posterior, find_mode(posterior, theta)
    posterior = with_weights(posterior, robust_weights(posterior, theta))
    mode = find_mode(posterior, theta)
    for _ in range(5):
        weights = robust_weights(posterior, mode.theta)
        change = max(float(np.abs(weights[n] - g.weight).max(initial=0.0)) for n, g in posterior.groups.items())
        if change < 0.05:
            break
        posterior = with_weights(posterior, weights)
        mode = find_mode(posterior, mode.theta)
    return posterior, mode


def _default_draws(posterior: JointPosterior) -> int:
    work = sum((g.n_pairs + g.n_items) * g.p for g in posterior.groups.values())
    return int(np.clip(2.5e7 // max(work, 1), 100, 800)) // 4 * 4


def _sample(
    posterior: JointPosterior, together: JointPosterior, mode: Mode, options: JointOptions, seed: int, tell: Tell
) -> tuple[ItemMixture, Chains]:
    """Draws of links and population, each with the items' conditional moments (drifting factors counted in full)."""
    draws = options.draws or _default_draws(posterior)
    mixture = ItemMixture(posterior, np.random.default_rng([seed, 1]), draws if options.keep_draws else 0, together)
    rng = np.random.default_rng([seed, 2])
    done = 0

    def visit(theta: Array, at: Evaluation) -> None:
        nonlocal done
        done += 1
        tell(MODE_SHARE + (1.0 - MODE_SHARE) * done / draws, f"draw {done} of {draws}")
        mixture.visit(theta, at)

    if not posterior.free.any():
        at = evaluate(posterior, mode.theta, make_buffers(posterior))
        for _ in range(draws if options.keep_draws else 1):
            mixture.visit(mode.theta, at)
        return mixture, Chains(mode.theta[None, None], 1.0, 0.0, 1.0)
    if options.sampler == "laplace":
        return mixture, sample_laplace(posterior, mode, visit, draws=draws, rng=rng)
    return mixture, sample_joint(posterior, mode, visit, draws=draws, rng=rng)
