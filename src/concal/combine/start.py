"""Where the links of the joint consensus start: the periods' own links, or a chain of mean-mean links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from concal.combine.summary import PeriodSummary

Array = npt.NDArray[np.float64]


def starting_links(summaries: Sequence[PeriodSummary], reference: int) -> Array:
    """(log A, B) for every period and dimension, (M, K, 2).

    A period without a link is placed by the items it shares with periods already placed: log A from mean log a,
    B from mean d, each weighted by responses; nearest periods (most shared responses) first.
    """
    K = len(summaries[0].dimensions)
    out = np.zeros((len(summaries), K, 2))
    for k, dimension in enumerate(summaries[0].dimensions):
        known: dict[str, tuple[float, float, float]] = {}
        waiting = []
        for m, summary in enumerate(summaries):
            if summary.linked or m == reference:
                out[m, k] = summary.link_mean[k]
                _learn(known, _positions(summary, dimension))
            else:
                waiting.append(m)
        while waiting:
            shared = {m: _shared(known, _positions(summaries[m], dimension)) for m in waiting}
            best = max(waiting, key=lambda m: shared[m][0])
            waiting.remove(best)
            _, log_A, B = shared[best]
            out[best, k] = log_A, B
            A = float(np.exp(log_A))
            _learn(
                known,
                {i: (A * d + B, a - log_A, w) for i, (d, a, w) in _positions(summaries[best], dimension).items()},
            )
    return out


Positions = dict[str, tuple[float, float, float]]


def _positions(summary: PeriodSummary, dimension: str) -> Positions:
    """Item id -> (d, log a, responses)."""
    out: Positions = {}
    for group in summary.groups.values():
        if group.dimension == dimension:
            for j in np.flatnonzero(group.seen):
                out[group.item_ids[j]] = (float(group.mu[j, 0]), float(group.mu[j, 1]), float(group.n_responses[j]))
    return out


def _learn(known: Positions, more: Positions) -> None:
    for item, (d, a, w) in more.items():
        d0, a0, w0 = known.get(item, (0.0, 0.0, 0.0))
        total = w + w0
        known[item] = ((w * d + w0 * d0) / total, (w * a + w0 * a0) / total, total)


def _shared(known: Positions, here: Positions) -> tuple[float, float, float]:
    common = [i for i in here if i in known]
    if not common:
        return 0.0, 0.0, 0.0
    w = np.array([min(here[i][2], known[i][2]) for i in common])
    log_A = float(np.average([here[i][1] - known[i][1] for i in common], weights=w))
    B = float(np.average([known[i][0] - np.exp(log_A) * here[i][0] for i in common], weights=w))
    return float(w.sum()), log_A, B
