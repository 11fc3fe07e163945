"""What a link should be doubted for: few anchors, many that drifted, methods or halves of the anchors that disagree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from concal.errors import first_few
from concal.linking.anchors import Candidates, evenly
from concal.linking.criteria import Anchors, Array, make_loss, moment_link
from concal.linking.purify import only
from concal.linking.solve import Criterion, Solution, solve
from concal.linking.stored import Block
from concal.spec import LinkingSpec

_DIRECTION_PERCENT = 3.0
_FEW_EFFECTIVE = 10.0
_MANY_DRIFTED = 0.05  # what the consensus' own drift list would call many
_SEVERAL = 3  # one or two of a few anchors are more than 5 % by chance
_SDS = 3.0  # methods that disagree: the largest of 120 links without drift was 2.0
_LEVEL = 1e-3  # of halves that disagree: a false alarm in a thousand links
_DRAWS = 50  # then the SD of a difference is known to 10 %
_HALVES_SEED = 20264


def find_doubts(
    candidates: Candidates,
    blocks: Sequence[Block],
    order: npt.NDArray[np.int64],
    criterion: Criterion,
    solution: Solution,
    center: tuple[float, float],
    table: list[dict[str, object]],
    n_effective: float,
    spec: LinkingSpec,
) -> list[str]:
    """Warnings about one dimension's link: what, where, what to do.

    Parameters
    ----------
    candidates
        With the record of the purification.
    blocks, order
        The kept anchors' draws, and the candidates' positions in the order of the blocks.
    criterion, solution, center
        The link's criterion, (A, B) of every draw, and (A, B) at the posterior means.
    table
        (A, B) at the posterior means under other methods (`concal.linking.diagnose.method_table`).
    n_effective
        Effective number of anchors.
    """
    some = evenly(solution.A.size, _DRAWS)
    part = [b.take(some) for b in blocks]
    found = [
        *_few(candidates, n_effective),
        *_drifted(candidates, spec),
        *_methods(part, criterion, solution, some, center, table),
        *_halves(part, blocks, order, criterion, solution, some),
        *_direction(solution, table, spec),
    ]
    return [f"{candidates.dimension}: {text}" for text in found]


def _few(candidates: Candidates, n_effective: float) -> list[str]:
    if n_effective >= _FEW_EFFECTIVE:
        return []
    return [
        f"the link rests on {n_effective:.1f} effective anchors of {candidates.n_kept} kept, fewer than "
        f"{_FEW_EFFECTIVE:.0f}: one item that drifts moves it. Share more items between the periods, or collect more "
        "responses to those shared"
    ]


def _drifted(candidates: Candidates, spec: LinkingSpec) -> list[str]:
    gone = candidates.dropped_by == "purification"
    n, n_gone = candidates.n_kept + int(gone.sum()), int(gone.sum())
    if spec.purify == "paper" or n_gone < _SEVERAL or n_gone <= _MANY_DRIFTED * n:
        return []
    easier = int((candidates.residual[gone] > 0).sum())
    worst = np.argsort(-np.abs(np.where(gone, candidates.residual, 0.0)), kind="stable")[:n_gone]
    return [
        f"{n_gone} of {n} anchors ({n_gone / n:.0%}) were dropped as drifting, {easier} easier and {n_gone - easier} "
        f"harder than in the reference: {first_few([candidates.item_ids[int(k)] for k in worst])}. Look for a common "
        "cause (exposure, rewording, a changed population); if most of the others moved, the link follows them"
    ]


def _methods(
    part: list[Anchors],
    criterion: Criterion,
    solution: Solution,
    some: npt.NDArray[np.int64],
    center: tuple[float, float],
    table: list[dict[str, object]],
) -> list[str]:
    """Links of other methods at the posterior means, against the larger of the link's SD and the difference's SD."""
    ours = _constants(solution.A[some], solution.B[some])
    at_means = np.array([np.log(center[0]), center[1]])
    squared = make_loss("squared")
    others = {
        ("log_mean_mean", None, None): None,
        ("stocking_lord", "squared", "symmetric"): Criterion(
            "stocking_lord", squared, criterion.quadrature, "symmetric"
        ),
        ("haebara", "squared", "symmetric"): Criterion("haebara", squared, criterion.quadrature, "symmetric"),
    }
    sd_link = _constants(solution.A, solution.B).std(axis=0, ddof=1)
    far = []
    for row in table:
        key = (row["method"], row["loss"], row["grid_metric"])
        change = np.array([np.log(float(row["A"])), float(row["B"])]) - at_means  # type: ignore[arg-type]
        if key not in others or np.abs(change).max() <= 1e-6 or (np.abs(change) <= _SDS * sd_link).all():
            continue  # the SD of the difference would only make it less
        other = others[key]
        if other is None:
            A, B = moment_link("log_mean_mean", part)
        else:
            answer = solve(part, other, start=(solution.A[some], solution.B[some]))
            A, B = answer.A, answer.B
        sd = np.maximum(sd_link, (_constants(A, B) - ours).std(axis=0, ddof=1))
        sds = np.abs(change) / np.maximum(sd, 1e-12)
        if sds.max() > _SDS:
            name = str(row["method"])
            far.append((float(sds.max()), f"{name} A = {row['A']:.3f}, B = {row['B']:.3f} ({sds.max():.1f} SDs)"))
    if not far:
        return []
    return [
        f"other methods of linking the same anchors disagree with A = {center[0]:.3f}, B = {center[1]:.3f} (posterior "
        f"means): {'; '.join(text for _, text in sorted(far, reverse=True))}. Look at displacement and residual in "
        "link.anchors before believing any of them"
    ]


def _halves(
    part: list[Anchors],
    blocks: Sequence[Block],
    order: npt.NDArray[np.int64],
    criterion: Criterion,
    solution: Solution,
    some: npt.NDArray[np.int64],
) -> list[str]:
    r"""Two random halves of the anchors: :math:`x'C^{-1}x` of the difference x of (log A, B), as chi-square with 2 df.

    C is the covariance of the difference over the draws; halves are drawn by item id, so that they are the same in
    every run and whatever order the items come in.
    """
    n = order.size
    if n < 2 * _FEW_EFFECTIVE or some.size < 10:
        return []
    first = np.zeros(n, dtype=bool)
    first[np.random.default_rng(_HALVES_SEED).permutation(n)[: n // 2]] = True
    first = first[np.argsort(np.argsort(order))]
    ends, draws, mean = [], [], [b.mean for b in blocks]
    for half in (first, ~first):
        start = (solution.A[some], solution.B[some])
        answer = solve(only(part, half), criterion, start=start)
        draws.append(_constants(answer.A, answer.B))
        middle = solve(only(mean, half), criterion)
        ends.append((float(middle.A[0]), float(middle.B[0])))
    x = np.subtract(*(np.array([np.log(A), B]) for A, B in ends))
    C = np.cov((draws[0] - draws[1]).T)
    if np.abs(x).max() < 1e-6 or np.linalg.cond(C) > 1e12:
        return []
    distance = float(x @ np.linalg.solve(C, x))
    if distance <= stats.chi2.isf(_LEVEL, 2):
        return []
    return [
        f"two random halves of the anchors disagree: A = {ends[0][0]:.3f}, B = {ends[0][1]:.3f} and "
        f"A = {ends[1][0]:.3f}, B = {ends[1][1]:.3f}, a chi-square of {distance:.0f} with 2 df. The items differ "
        "between the periods by more than their uncertainty, so the link's SD is too small: look at displacement in "
        "link.anchors for the items that differ"
    ]


def _direction(solution: Solution, table: list[dict[str, object]], spec: LinkingSpec) -> list[str]:
    """Where noise in the anchors, not the metrics, makes up part of A.

    With nodes on one metric the noise of the draws acts as errors in variables do: A shrinks (nodes on the reference
    metric) or grows (on the period's). The symmetric link at the posterior means is nearly free of it.
    """
    if spec.method != "haebara" or spec.grid_metric == "symmetric":
        return []
    middle = next(r["A"] for r in table if (r["method"], r["grid_metric"]) == ("haebara", "symmetric"))
    change = 100.0 * (float(solution.A.mean()) / float(middle) - 1.0)  # type: ignore[arg-type]
    if abs(change) < _DIRECTION_PERCENT:
        return []
    return [
        f"A is {change:+.1f} % from the symmetric link of the posterior means: the anchors' noise shows; "
        f'grid_metric = "symmetric" is the safer choice for anchors with few responses'
    ]


def _constants(A: Array, B: Array) -> Array:
    return np.stack([np.log(A), B], axis=-1)
