"""Which anchors leave a link because they do not agree with the others: our rule, and the paper's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.linking.anchors import Candidates, Side, anchor_blocks, evenly, mean_locations
from concal.linking.criteria import Anchors, Array, Quadrature, make_loss
from concal.linking.membership import center_moves
from concal.linking.solve import Criterion, solve
from concal.linking.two_groups import ScoreShifts, TwoGroups, score_shifts, two_groups
from concal.spec import LinkingSpec

_ZERO_RESIDUAL = 1e-9  # below this a residual is rounding, and nothing stands out
_MAX_DRAWS = 200  # then an anchor's SD is known to 5 %, and the error of its mean is 7 % of it


def purify(
    candidates: Candidates, period: Side, target: Side, quadrature: Quadrature, spec: LinkingSpec
) -> tuple[Candidates, Array]:
    """Candidates that passed the screens, without those the rule of ``spec.purify`` drops; and moves of B.

    The moves (draws,) are what B changes by when every draw has its own draw of who drifted (`membership`): zero by the
    paper's rule, which takes its decisions for certain.
    """
    n_draws = period.draws.size
    certain = np.zeros(n_draws)
    if spec.purify == "paper":
        centers = mean_locations(target, candidates.place_ref), mean_locations(period, candidates.place_foc)
        return paper_rule(candidates, *centers, spec), certain
    if spec.purify_rounds == 0 or candidates.n_kept < 3:
        return candidates, certain
    some = evenly(n_draws, _MAX_DRAWS)
    omega = candidates.weights(spec.weights)
    stored, order = anchor_blocks(period.take(some), target.take(some), candidates, omega)
    blocks = [block.take(slice(None)) for block in stored]
    candidates, shifts, found = score_rule(candidates, blocks, order, quadrature, spec)
    return candidates, center_moves(shifts, found, candidates.kept[order], n_draws)


def score_rule(
    candidates: Candidates,
    blocks: list[Anchors],
    order: npt.NDArray[np.int64],
    quadrature: Quadrature,
    spec: LinkingSpec,
) -> tuple[Candidates, ScoreShifts, TwoGroups]:
    r"""Drop the anchors that have more probably drifted than not.

    Each round links the posterior means of the anchors at hand (Haebara, pseudo-Huber, symmetric, whatever method the
    period is linked by later), asks `two_groups` about all candidates, those dropped before included, and drops where

    .. math:: P(\Delta_j \ne 0 \mid u) > p,

    p being `spec.purify_probability`, until a round changes nothing; at most `spec.purify_rounds` rounds. At least
    `spec.min_anchors` stay, those with the smallest probabilities.

    Why p = 1/2 and not a bound on false discoveries: anchors shifted by two of their SDs are hardly ever beyond such a
    bound, and a fifth of them left in moves B by several of its SDs. At one half, the anchors that go although they
    stayed and those that remain although they drifted are about as many, and balance.

    Returns
    -------
    The candidates, and what was known of the anchors in the last round, in the order of the blocks.
    """
    criterion = Criterion("haebara", make_loss("pseudo_huber", spec.delta), quadrature, "symmetric")
    mean = [b.mean for b in blocks]
    kept = np.ones(order.size, dtype=bool)
    when = np.zeros(order.size, dtype=np.int64)
    for number in range(1, spec.purify_rounds + 1):
        answer = solve(only(mean, kept), criterion)
        shifts = score_shifts(blocks, quadrature, float(answer.A[0]), float(answer.B[0]))
        found = two_groups(shifts)
        new = _stay(found, order, spec)
        when[kept & ~new] = number
        if (new == kept).all():
            break
        kept = new
    dropped, rounds = candidates.dropped_by.copy(), candidates.round.copy()
    residual, probability = candidates.residual.copy(), candidates.drift_probability.copy()
    residual[order], probability[order] = found.residual, found.probability
    dropped[order[~kept]] = "purification"
    rounds[order] = np.where(kept, 0, when)
    left = replace(candidates, dropped_by=dropped, round=rounds, residual=residual, drift_probability=probability)
    return left, shifts, found


def _stay(found: TwoGroups, order: npt.NDArray[np.int64], spec: LinkingSpec) -> npt.NDArray[np.bool_]:
    stay = found.probability <= spec.purify_probability
    least = np.lexsort((order, found.probability))[: spec.min_anchors]
    if stay.sum() < spec.min_anchors:
        stay[least] = True
    return np.asarray(stay)


def only(blocks: list[Anchors], kept: npt.NDArray[np.bool_]) -> list[Anchors]:
    """The kept anchors of each block; a block with none is left out."""
    parts, start = [], 0
    for b in blocks:
        mine = kept[start : start + b.omega.size]
        start += b.omega.size
        if mine.any():
            parts.append(Anchors(b.ref_model, b.foc_model, b.ref[:, mine], b.foc[:, mine], b.omega[mine]))
    return parts


def paper_rule(candidates: Candidates, d_ref: Array, d_foc: Array, spec: LinkingSpec) -> Candidates:
    r"""Drop anchors far from a mean-sigma link of the posterior-mean locations, in rounds.

    Each round fits :math:`d^{ref} = A d + B` by means and SDs of the kept anchors and drops those whose absolute
    residual lies in the top `spec.purify_share`, a share of the anchors left or of all there were before the first
    round (`spec.purify_of`); at most `spec.purify_rounds` rounds. It stops where a round would leave fewer than
    `spec.min_anchors`, or drop nothing.
    """
    dropped, when = candidates.dropped_by.copy(), candidates.round.copy()
    residual, start = candidates.residual.copy(), candidates.n_kept
    for number in range(1, spec.purify_rounds + 1):
        kept = dropped == ""
        n = int(kept.sum())
        share = spec.purify_share * (start / n if spec.purify_of == "all" else 1.0) if n else 0.0
        if n < 3 or not 0.0 < share < 1.0 or d_foc[kept].std() == 0:
            break
        distance = _mean_sigma_residuals(d_ref[kept], d_foc[kept])
        size = np.abs(distance)
        out = (size > np.quantile(size, 1.0 - share)) & (size > _ZERO_RESIDUAL)
        if not out.any() or n - out.sum() < spec.min_anchors:
            break
        gone = np.flatnonzero(kept)[out]
        dropped[gone], when[gone], residual[gone] = "purification", number, distance[out]
    kept = dropped == ""
    if kept.sum() >= 2 and d_foc[kept].std() > 0:  # the residuals the kept anchors ended with
        residual[kept] = _mean_sigma_residuals(d_ref[kept], d_foc[kept])
    return replace(candidates, dropped_by=dropped, round=when, residual=residual)


def _mean_sigma_residuals(d_ref: Array, d_foc: Array) -> Array:
    """d_ref - (A d + B) with the constants that make means and SDs of the locations agree."""
    A = d_ref.std() / d_foc.std()
    return np.asarray(d_ref - metric.move_theta(d_foc, A, metric.shift_to(d_ref.mean(), A, d_foc.mean())))
