"""The link of one period to the reference metric: the stage that users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.calibration.result import Calibration
from concal.calibration.workers import one_blas_thread
from concal.errors import LinkError, counted, first_few
from concal.linking.anchors import (
    Candidates,
    Side,
    Source,
    anchor_blocks,
    draws_of,
    evenly,
    locations,
    period_source,
)
from concal.linking.criteria import CURVE_METHODS, Array, make_loss, make_quadrature, moment_link
from concal.linking.diagnose import anchor_influence, effective_number, method_table
from concal.linking.doubts import find_doubts
from concal.linking.path import ConsensusLike, Others, Route, SoFar, consensus_source, find_route
from concal.linking.purify import purify
from concal.linking.result import Link
from concal.linking.solve import Criterion, Solution, solve
from concal.linking.stored import ITEMS_AT_A_TIME, Block
from concal.spec import LinkingSpec

_CONSENSUS_SEED, _PAIRING_SEED = 20263, 20264
LINKING = 1
"""Raised when the same draws and options give another link: a bank then makes its stored links again."""


@dataclass(frozen=True)
class _DimensionLink:
    A: Array
    B: Array
    newton: npt.NDArray[np.bool_]
    route: Route
    anchors: pl.DataFrame
    diagnostics: dict[str, object]
    methods: list[dict[str, object]]
    warnings: tuple[str, ...]


def link(
    calibration: Calibration,
    reference: Calibration,
    *,
    spec: LinkingSpec | None = None,
    consensus: ConsensusLike | None = None,
    others: Mapping[str, tuple[Calibration, Link]] | None = None,
    threads: int | None = None,
) -> Link:
    r"""Put a period on the reference metric, draw by draw: :math:`\theta_{ref} = A\theta + B`.

    Parameters
    ----------
    calibration
        The period, on its own metric.
    reference
        The reference period; its metric is the reference metric.
    spec
        Options of the ``[linking]`` section; default the section's defaults.
    consensus
        The consensus so far, for a period with fewer than ``spec.min_anchors`` anchors in the reference.
    others
        Linked periods, name -> (calibration, link), for chains where the consensus does not help either.
    threads
        Default all cores; the answer does not depend on it.

    Returns
    -------
    Link
        (A, B) of every draw and dimension, the record of every candidate anchor, and diagnostics.

    Raises
    ------
    LinkError
        Fewer than two anchors, or draws that cannot be linked; the message names counts and items.
    """
    return link_sources(
        period_source(calibration),
        period_source(reference),
        spec=spec or LinkingSpec(),
        consensus=None if consensus is None else lambda: consensus.groups,
        others=lambda: ((period_source(other), its) for other, its in (others or {}).values()),
        threads=threads,
    )


@one_blas_thread
def link_sources(
    period: Source,
    target: Source,
    *,
    spec: LinkingSpec,
    consensus: SoFar | None = None,
    others: Others = lambda: (),
    threads: int | None = None,
) -> Link:
    """See `link`; draws are read a dimension at a time."""
    draws = evenly(period.n_draws, spec.draws or period.n_draws)
    wanted = [d for d in period.dimensions if any(g.dimension == d for g in period.groups)]
    through = None if consensus is None else cache(lambda: consensus_source(consensus(), draws.size, _CONSENSUS_SEED))
    parts: dict[str, _DimensionLink] = {}
    for dimension in wanted:
        route = find_route(
            period,
            target,
            dimension,
            max_rhat=spec.max_rhat,
            min_anchors=spec.min_anchors,
            consensus=through,
            others=others,
        )
        parts[dimension] = _link_dimension(period, route, draws, spec, threads)
    return _assemble(period, target.name, draws, parts)


def partners(draws: npt.NDArray[np.int64], n_target: int) -> npt.NDArray[np.int64]:
    """Which draw of the target each draw meets: in random order, a shorter target again from its start.

    Draws of two periods are independent given the data, so any order will do; not their own, because two runs of an
    engine with one seed can share random numbers. Their metrics then wobble together, the wobble cancels in the link,
    and its SD is a quarter of what it should be (periods of 1,000 examinees, equally many sweeps).
    """
    order = np.random.default_rng(_PAIRING_SEED).permutation(n_target)
    return order if n_target == draws.size else order[draws % n_target]


def _link_dimension(
    period: Source, route: Route, draws: npt.NDArray[np.int64], spec: LinkingSpec, threads: int | None
) -> _DimensionLink:
    candidates = route.candidates
    foc, ref = draws_of(period, candidates.place_foc).take(draws), draws_of(route.placed_target, candidates.place_ref)
    ref = ref.take(partners(draws, ref.draws.size))
    quadrature = make_quadrature(np.linspace(-spec.node_range, spec.node_range, spec.nodes))
    candidates, moves = purify(candidates, foc, ref, quadrature, spec)
    omega = candidates.weights(spec.weights)
    blocks, order = anchor_blocks(foc, ref, candidates, omega)
    criterion = Criterion(
        spec.method, make_loss(spec.loss, spec.delta, spec.power, spec.eps), quadrature, spec.grid_metric
    )
    solution, center = _solve_draws(blocks, criterion, threads)
    solution = replace(solution, B=solution.B + moves)
    _refuse_bad_link(solution, period.name, candidates)
    influence_A, influence_B, information = anchor_influence([b.mean for b in blocks], criterion, *center)
    n_effective = effective_number(information)
    displacement = _displacements(foc, ref, candidates, solution)
    frame = _anchor_frame(candidates, omega, *displacement, order, influence_A, influence_B)
    table = method_table(blocks, quadrature, spec.delta)
    warnings = list(route.warnings)
    if candidates.unknown_rhat:
        warnings.append(
            f"{candidates.dimension}: {counted(candidates.unknown_rhat, 'anchor')} without R-hat in a period, not "
            "screened"
        )
    unsolved = int((~solution.newton).sum())
    if unsolved:
        warnings.append(f"{candidates.dimension}: {unsolved} of {solution.A.size} draws were solved by the safe method")
    warnings.extend(find_doubts(candidates, blocks, order, criterion, solution, center, table, n_effective, spec))
    return _DimensionLink(
        solution.A,
        solution.B,
        solution.newton,
        route,
        frame,
        _summary(candidates, route, solution, center, n_effective),
        [{"dimension": candidates.dimension, **row} for row in table],
        tuple(warnings),
    )


def _solve_draws(
    blocks: Sequence[Block], criterion: Criterion, threads: int | None
) -> tuple[Solution, tuple[float, float]]:
    """The link at the posterior means first; each draw starts from it, moved as its log-mean-mean link moves."""
    mean = [b.mean for b in blocks]
    middle = solve(mean, criterion, exact=True)
    center = (float(middle.A[0]), float(middle.B[0]))
    if criterion.method not in CURVE_METHODS:
        return solve(blocks, criterion), center
    A, B = moment_link("log_mean_mean", blocks)
    A0, B0 = moment_link("log_mean_mean", mean)
    start = (A * (center[0] / A0), B + (center[1] - B0))
    return solve(blocks, criterion, start=start, threads=threads), center


def _refuse_bad_link(solution: Solution, period: str, candidates: Candidates) -> None:
    bad = np.flatnonzero(~(np.isfinite(solution.A) & np.isfinite(solution.B) & (solution.A > 0))).tolist()
    if bad:
        raise LinkError(
            f"period {period!r}, dimension {candidates.dimension!r}: no link for draws {first_few(bad)} "
            f"from {counted(candidates.n_kept, 'anchor')}; look at the anchors' draws and their R-hat"
        )


def _displacements(foc: Side, ref: Side, candidates: Candidates, solution: Solution) -> tuple[Array, Array]:
    """Mean and SD over the draws of d_ref - (A d + B) of every candidate, some candidates at a time."""
    n = len(candidates.item_ids)
    mean, sd = np.empty(n), np.zeros(n)
    for start in range(0, n, ITEMS_AT_A_TIME):
        own = slice(start, start + ITEMS_AT_A_TIME)
        linked = metric.move_theta(locations(foc, candidates.place_foc[own]), solution.A[:, None], solution.B[:, None])
        off = locations(ref, candidates.place_ref[own]) - linked
        mean[own] = off.mean(axis=0)
        if foc.draws.size > 1:
            sd[own] = off.std(axis=0, ddof=1)
    return mean, sd


def _anchor_frame(
    candidates: Candidates,
    omega: Array,
    displacement: Array,
    displacement_sd: Array,
    order: npt.NDArray[np.int64],
    influence_A: Array,
    influence_B: Array,
) -> pl.DataFrame:
    """One row per candidate, dropped ones too; displacement is d_ref - (A d + B), its SD that over the draws."""
    n = len(candidates.item_ids)
    influence = np.full((2, n), np.nan)
    influence[:, order] = influence_A, influence_B
    purified = candidates.dropped_by == "purification"
    return pl.DataFrame(
        {
            "item_id": list(candidates.item_ids),
            "dimension": [candidates.dimension] * n,
            "group": list(candidates.groups),
            "n_responses_ref": candidates.n_ref,
            "n_responses": candidates.n_foc,
            "weight": omega,
            "kept": candidates.kept,
            "dropped_by": [name or None for name in candidates.dropped_by.tolist()],
            "round": [int(r) if p else None for r, p in zip(candidates.round, purified, strict=True)],
            "residual": candidates.residual,
            "drift_probability": candidates.drift_probability,
            "displacement": displacement,
            "displacement_sd": displacement_sd,
            "influence_A": influence[0],
            "influence_B": influence[1],
        },
        schema_overrides={"dropped_by": pl.String, "round": pl.Int64, "item_id": pl.String, "group": pl.String},
    ).with_columns(pl.selectors.float().fill_nan(None))


def _summary(
    candidates: Candidates, route: Route, solution: Solution, center: tuple[float, float], n_effective: float
) -> dict[str, object]:
    A, B = solution.A, solution.B
    several = A.size > 1 and A.std() > 0 and B.std() > 0
    return {
        "dimension": candidates.dimension,
        "path": " -> ".join(route.path),
        "A_mean": float(A.mean()),
        "A_sd": float(A.std(ddof=1)) if A.size > 1 else 0.0,
        "B_mean": float(B.mean()),
        "B_sd": float(B.std(ddof=1)) if B.size > 1 else 0.0,
        "correlation": float(np.corrcoef(A, B)[0, 1]) if several else 0.0,
        "A_at_means": center[0],
        "B_at_means": center[1],
        "candidates": len(candidates.item_ids),
        "dropped_rhat": int((candidates.dropped_by == "rhat").sum()),
        "dropped_purification": int((candidates.dropped_by == "purification").sum()),
        "anchors": candidates.n_kept,
        "effective_anchors": n_effective,
        "newton_share": float(solution.newton.mean()),
        "passes": solution.passes,
        "hops": route.hops,
    }


def _assemble(period: Source, reference: str, draws: npt.NDArray[np.int64], parts: dict[str, _DimensionLink]) -> Link:
    shape = (draws.size, len(period.dimensions))
    A, B = np.ones(shape), np.zeros(shape)
    warnings: list[str] = []
    for k, dimension in enumerate(period.dimensions):
        if dimension in parts:
            A[:, k], B[:, k] = parts[dimension].A, parts[dimension].B
            warnings.extend(parts[dimension].warnings)
        else:
            warnings.append(f"{dimension}: the period has no items of this dimension; its metric is left as it is")
    found = list(parts.values())
    return Link(
        period=period.name,
        reference=reference,
        dimensions=period.dimensions,
        A=A,
        B=B,
        anchors=pl.concat([p.anchors for p in found]) if found else pl.DataFrame(),
        path={d: p.route.path for d, p in parts.items()},
        converged={d: float(p.newton.mean()) for d, p in parts.items()},
        diagnostics=pl.DataFrame([p.diagnostics for p in found]),
        methods=pl.DataFrame([row for p in found for row in p.methods], infer_schema_length=None),
        warnings=tuple(warnings),
        draw_index=None if draws.size == period.n_draws else draws,
    )
