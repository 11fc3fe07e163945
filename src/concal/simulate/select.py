"""Which items an examinee sees. Nothing here knows a true parameter: only popularity and the scores given so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Respond = Callable[[Index, Index], Array]
"""(examinee rows, item indices) -> scores divided by the maximum score."""

_TRIES = 12
_CANDIDATES = 6


def draw_items(weights: Array, taken: Index, rng: np.random.Generator) -> Index:
    """One further item per examinee, with probability proportional to `weights` among those not in `taken` (n, k).

    A repeated item is drawn again, which is the same as drawing from the rest; the few examinees who stay unlucky
    (a small pool with very uneven weights) get an exact draw over all items.
    """
    n = taken.shape[0]
    edges = np.cumsum(weights)
    chosen = np.empty(n, dtype=np.int64)
    pending = np.arange(n)
    for _ in range(_TRIES):
        u = rng.random(pending.size) * edges[-1]
        chosen[pending] = np.searchsorted(edges, u, side="right").clip(max=weights.size - 1)
        pending = pending[(taken[pending] == chosen[pending, None]).any(axis=1)]
        if not pending.size:
            return chosen
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    for some in np.array_split(pending, pending.size * weights.size // 4_000_000 + 1):
        keys = log_weights + rng.gumbel(size=(some.size, weights.size))
        np.put_along_axis(keys, taken[some], -np.inf, axis=1)
        chosen[some] = keys.argmax(axis=1)
    return chosen


def choose_tests(weights: Array, n: int, length: int, rng: np.random.Generator) -> Index:
    """Items of n fixed tests, (n, length), by weight and without repetition."""
    tests = np.empty((n, length), dtype=np.int64)
    for k in range(length):
        tests[:, k] = draw_items(weights, tests[:, :k], rng)
    return tests


@dataclass
class Experience:
    """What an operator has learned about items from scores alone: counts, score sums, sums of ability estimates."""

    count: Array
    score: Array
    ability: Array

    @classmethod
    def none(cls, n_items: int) -> Experience:
        """Before the first response."""
        return cls(np.zeros(n_items), np.zeros(n_items), np.zeros(n_items))

    def difficulty(self) -> Array:
        """Where an item seems to lie: its takers' mean estimate minus the logit of its shrunken mean score."""
        share = (self.score + 5.0) / (self.count + 10.0)
        return self.ability / (self.count + 10.0) - np.log(share / (1.0 - share))

    def add(self, item: Index, score: Array, ability: Array) -> None:
        """Count a batch of responses."""
        n = self.count.shape[0]
        self.count += np.bincount(item, minlength=n)
        self.score += np.bincount(item, weights=score, minlength=n)
        self.ability += np.bincount(item, weights=ability, minlength=n)


def choose_adaptively(
    weights: Array,
    dimension: Index,
    shape: tuple[int, int, int],
    respond: Respond,
    experience: Experience,
    rng: np.random.Generator,
) -> Index:
    r"""Items of n adaptive tests, (n, length), all examinees side by side, one position after the other.

    Each examinee gets, of a few candidates drawn by weight, the one whose difficulty (from `experience`) is nearest
    to the running estimate of the ability it measures. After a relative score y on an item of difficulty b the
    estimate takes one Newton step, :math:`\hat\theta \leftarrow \hat\theta + (y - \sigma(\hat\theta - b)) / I`, I the
    prior's precision plus the information so far.

    Parameters
    ----------
    shape
        Examinees, test length, dimensions.
    """
    n, length, n_dimensions = shape
    everyone = np.arange(n)
    estimate, information = np.zeros((n, n_dimensions)), np.ones((n, n_dimensions))
    tests = np.empty((n, length), dtype=np.int64)
    for k in range(length):
        difficulty = experience.difficulty()
        best = draw_items(weights, tests[:, :k], rng)
        gap = np.abs(difficulty[best] - estimate[everyone, dimension[best]])
        for _ in range(_CANDIDATES - 1):
            other = draw_items(weights, tests[:, :k], rng)
            other_gap = np.abs(difficulty[other] - estimate[everyone, dimension[other]])
            best = np.where(other_gap < gap, other, best)
            gap = np.minimum(gap, other_gap)
        tests[:, k] = best
        score = respond(everyone, best)
        where = dimension[best]
        now = estimate[everyone, where]
        expected = 1.0 / (1.0 + np.exp(difficulty[best] - now))
        information[everyone, where] += expected * (1.0 - expected)
        estimate[everyone, where] = now + (score - expected) / information[everyone, where]
        experience.add(best, score, estimate[everyone, where])
    return tests
