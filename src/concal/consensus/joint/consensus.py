r"""The joint consensus: one posterior of items, links and populations given the factors of all periods.

.. math:: \prod_{jm} f_{jm}(M_m\phi_j) \prod_j N(\xi_j; X_j\beta_g, \Sigma_g)\; p(A, B)\; p(\beta, \Sigma)

Every item that any two periods share informs their links, items and links keep their dependence, and the population is
estimated once, under the priors of a calibration. Items that the form of a group in force does not describe follow a
population of their own, in the newest form that does: at mean features among the others they would widen its spread.

With a half-life f is raised to its period's weight, for items and population. A link says where a period's metric was
and does not fade, or a bank would lose the metric with the reference's weight: links are drawn from all evidence first,
and then items and population, from what has not faded, at each draw of the links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from concal.calibration.kernels import LANES
from concal.calibration.standardise import group_rows
from concal.calibration.workers import Workers, available_cores
from concal.consensus.analytic.forms import NewItems, unite_forms
from concal.consensus.analytic.population import consensus_population
from concal.consensus.analytic.totals import Totals, sum_periods
from concal.consensus.factors.period import Placed
from concal.consensus.joint.arrange import answered_rows, arrange, by_form, faded, group_layout
from concal.consensus.joint.likelihood import Factors
from concal.consensus.joint.links import LinkPriors, LinkSteps
from concal.consensus.joint.result import JointSample, group_result, joint_draws, link_table
from concal.consensus.joint.sampler import KEPT, TARGET_ESS, TARGET_RHAT, JointDraws, JointSampler
from concal.consensus.joint.start import protect_links, scattered_links, settle, start_items
from concal.consensus.joint.state import JointState
from concal.consensus.result import Consensus
from concal.spec import ConsensusSpec

Tell = Callable[[float, str], None]


def combine_jointly(
    placed: Sequence[Placed],
    totals: Totals,
    spec: ConsensusSpec,
    *,
    items: Mapping[str, NewItems] | None = None,
    progress: Tell | None = None,
) -> Consensus:
    """Joint consensus of several periods.

    Parameters
    ----------
    placed : sequence of Placed
        Oldest first. Periods that were not linked are placed by the items they share with the others.
    totals : Totals
        Of the same periods: the chains start from the analytic consensus.
    """
    sample = sample_jointly(placed, totals, spec, items=items, progress=progress)
    draws, suspects = sample.draws, sample.suspects
    groups = {group.name: group_result(sample, k) for k, group in enumerate(sample.evidence)}
    warnings = [*totals.warnings, *(w for group in sample.evidence for w in group.warnings)]
    if draws.min_ess < TARGET_ESS or draws.max_rhat > TARGET_RHAT:
        warnings.append(
            f"the joint sampler ended after {draws.sweeps} sweeps with R-hat {draws.max_rhat:.2f} and "
            f"{draws.min_ess:.0f} effective draws of links and population (aimed for: {TARGET_RHAT}, {TARGET_ESS:.0f});"
            " what it says is known less well than its SDs tell; periods tied by few items and spreads near zero "
            'mix slowly: give such periods more anchors, merge small groups, or take method = "analytic"'
        )
    if suspects:
        n_items = sum(t.rows.size for t in sample.tables)
        warnings.append(
            f"{suspects:,} of {n_items:,} items differ between periods and hardly count for the links (robust_links)"
        )
    return Consensus(
        "joint",
        totals.reference,
        totals.dimensions,
        totals.periods,
        groups,
        links=link_table(draws, totals),
        joint=joint_draws(groups, sample),
        joint_links=np.swapaxes(draws.kept_links, 1, 2).copy(),
        warnings=tuple(warnings),
    )


def sample_jointly(
    placed: Sequence[Placed],
    totals: Totals,
    spec: ConsensusSpec,
    *,
    items: Mapping[str, NewItems] | None = None,
    progress: Tell | None = None,
    keep: int = KEPT,
) -> JointSample:
    """Draws of items, links and populations together; of the items' draws `keep` are kept."""
    tell = progress or (lambda share, message: None)
    if spec.half_life is None:
        return _Stage(placed, totals, spec.seed, items).sample(keep, tell, robust=spec.robust_links)
    past = _Stage(placed, sum_periods(placed), spec.seed, items)
    found = past.sample(LANES, lambda share, text: tell(0.5 * share, f"links, {text}"), robust=spec.robust_links)
    recent = _Stage(placed, totals, spec.seed, items, spec.half_life)
    sample = recent.sample_at(found.draws, keep, lambda share, text: tell(0.5 + 0.5 * share, f"items, {text}"))
    return replace(sample, suspects=found.suspects)


class _Stage:
    """Items, links and populations of the periods, with the weights a half-life gives them.

    `groups` are the groups; `evidence`, `tables` and `layouts` have an entry for every part of a group (`by_form`).
    """

    def __init__(
        self,
        placed: Sequence[Placed],
        totals: Totals,
        seed: int,
        items: Mapping[str, NewItems] | None,
        half_life: float | None = None,
    ) -> None:
        self.placed, self.totals, self.seed = placed, totals, seed
        self.groups = [unite_forms(totals.forms(name), (items or {}).get(name)) for name in totals.group_names]
        populations = {f.form_key: consensus_population(f) for f in totals.groups.values() if f.population_weight > 0}
        split = [by_form(group, arrange(placed, group, populations)) for group in self.groups]
        ends = np.cumsum([len(parts) for parts in split])
        self.parts = [list(range(end - len(parts), end)) for parts, end in zip(split, ends.tolist(), strict=True)]
        self.evidence, tables = (list(column) for column in zip(*chain(*split), strict=True))
        self.tables = tables if half_life is None else [faded(t, len(placed), half_life) for t in tables]
        whole = group_rows({g.name: answered_rows(g, table) for g, table in zip(self.evidence, tables, strict=True)})
        self.layouts = [
            group_layout(g, tables[k], totals.dimensions.index(g.dimension), whole[g.name], part_of=group.name)
            for group, parts in zip(self.groups, self.parts, strict=True)
            for k, g in ((k, self.evidence[k]) for k in parts)
        ]
        self.factors = Factors(self.layouts, self.tables)
        self.taus = [float(group.form.hyperprior[0, 0]) for group in self.evidence]
        self.rng = np.random.default_rng([seed, 2])

    def sample(self, keep: int, tell: Tell, *, robust: bool) -> JointSample:
        """With links as unknowns."""
        link, linked = np.swapaxes(self.totals.link_mean, 0, 1), np.array([p.linked for p in self.placed])
        with Workers(available_cores()) as workers:
            known = settle(self.evidence, self.factors, link, workers)
            suspects = protect_links(self.evidence, self.factors, known, link, linked, workers) if robust else 0
            groups = start_items(self.evidence, self.factors, known, self.rng)
            state = JointState(0, groups, scattered_links(self.totals, self.rng), [])
            steps = LinkSteps(self.factors, LinkPriors(self.placed, self.layouts, self.tables), self.seed, workers)
            sampler = JointSampler(self.layouts, self.factors, state, self.taus, self.seed, workers, keep, links=steps)
            return self._sample(sampler.run(tell), suspects)

    def sample_at(self, past: JointDraws, keep: int, tell: Tell) -> JointSample:
        """At given draws of the links."""
        given = np.ascontiguousarray(np.moveaxis(past.links.reshape(-1, LANES, *past.links.shape[1:]), 1, -1))
        seed = int(self.rng.integers(2**31))  # with random numbers of the links' chains items would follow these
        with Workers(available_cores()) as workers:
            known = settle(self.evidence, self.factors, past.links.mean(axis=0), workers)
            groups = start_items(self.evidence, self.factors, known, self.rng)
            state = JointState(0, groups, given[0].copy(), [])
            sampler = JointSampler(self.layouts, self.factors, state, self.taus, seed, workers, keep, given=given)
            draws = sampler.run(tell, most_sweeps=past.sweeps)
        rhat, ess = max(past.max_rhat, draws.max_rhat), min(past.min_ess, draws.min_ess)
        return self._sample(replace(draws, links=past.links, max_rhat=rhat, min_ess=ess))

    def _sample(self, draws: JointDraws, suspects: int = 0) -> JointSample:
        return JointSample(self.groups, self.parts, self.tables, self.layouts, draws, suspects, self.rng)
