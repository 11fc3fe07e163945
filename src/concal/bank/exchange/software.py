r"""Item parameters in the words of other software.

Ours: :math:`\eta = a(\theta - d)`. R mirt and flexMIRT write slopes and intercepts:

- right/wrong: :math:`P = g + (1 - g)\,\sigma(a\theta + d')`, :math:`d' = -a d`;
- graded: :math:`P(X \ge k) = \sigma(a\theta + d'_k)`, :math:`d'_k = -a d - c_k`;
- partial credit (mirt's gpcm): :math:`P(X = k) \propto \exp(k a\theta + d'_k)`,
  :math:`d'_k = -k a d - \sum_{l \le k} c_l`.

Which of these an item is, is seen from its probabilities, not from the name of its response model. A model that fits
none of them has no counterpart there, and its items are named as left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import logsumexp

from concal.bank.exchange.formats import Content
from concal.bank.exchange.writers import csv_writer, json_writer
from concal.consensus.result import Consensus, GroupConsensus
from concal.errors import DataError, first_few
from concal.response import ResponseModel
from concal.response.natural import natural_from_xi

if TYPE_CHECKING:
    from concal.bank.version import Version

Array = npt.NDArray[np.float64]
Natural = Mapping[str, Array]


class Words(NamedTuple):
    """How other software calls a group's items, and their intercepts (items, k)."""

    mirt: str
    flexmirt: int | None
    intercepts: Array


def describe(model: ResponseModel, mean: Array, natural: Natural) -> Words | None:
    """The words for items at xi = `mean`; None where their curves are of no known kind."""
    if model.n_categories is None or "a" not in natural:
        return None
    if set(natural) <= {"a", "d", "c"}:
        return _right_wrong(model, mean, natural)
    a = natural["a"][:, None]
    at_0, at_1 = (_log_probabilities(model, mean, theta) for theta in (0.0, 1.0))
    graded = [_upper_logits(p) for p in (at_0, at_1)]
    if np.allclose(graded[1] - graded[0], a, rtol=1e-6, atol=1e-8):
        return Words("graded", 2, graded[0])
    steps = [np.diff(p, axis=1) for p in (at_0, at_1)]
    if np.allclose(steps[1] - steps[0], a, rtol=1e-6, atol=1e-8):
        return Words("gpcm", None, np.cumsum(steps[0], axis=1))
    return None


def _right_wrong(model: ResponseModel, mean: Array, natural: Natural) -> Words | None:
    guess = natural.get("c", np.zeros(mean.shape[0]))
    for theta in (-1.0, 0.5):
        ours = model.expected_score(np.full(mean.shape[0], theta), mean)
        theirs = guess + (1.0 - guess) / (1.0 + np.exp(-natural["a"] * (theta - natural["d"])))
        if not np.allclose(ours, theirs, rtol=1e-8, atol=1e-10):
            return None
    intercepts = (-natural["a"] * natural["d"])[:, None]
    return Words("3PL", 1, intercepts) if "c" in natural else Words("2PL", 2, intercepts)


def _log_probabilities(model: ResponseModel, mean: Array, theta: float) -> Array:
    """log P(X = k), (items, categories)."""
    n, abilities = mean.shape[0], np.full(mean.shape[0], theta)
    scores = range(model.n_categories or 0)
    return np.stack([model.log_likelihood(np.full(n, float(k)), abilities, mean) for k in scores], axis=1)


def _upper_logits(log_p: Array) -> Array:
    """logit P(X >= k), k = 1, 2, ..."""
    k = range(1, log_p.shape[1])
    return np.stack([logsumexp(log_p[:, j:], axis=1) - logsumexp(log_p[:, :j], axis=1) for j in k], axis=1)


_Known = tuple[GroupConsensus, Words, Natural]


def _known(consensus: Consensus, use: Callable[[Words], bool]) -> tuple[list[_Known], tuple[str, ...]]:
    """Groups the other software has a model for, and the ids of all other items."""
    found: list[_Known] = []
    left_out: list[str] = []
    for group in consensus.groups.values():
        natural = natural_from_xi(group.model, group.mean)
        words = describe(group.model, group.mean, natural)
        if words is not None and use(words):
            found.append((group, words, natural))
        else:
            left_out.extend(group.item_ids)
    if not found:
        raise DataError(f"none of the bank's response models exists there; left out: {first_few(left_out)}")
    return found, tuple(left_out)


def catsim_table(consensus: Consensus) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """item_id and catsim's columns: a discrimination, b difficulty, c guessing, d upper asymptote (1)."""
    found, left_out = _known(consensus, lambda words: words.intercepts.shape[1] == 1)
    frames = [
        pl.DataFrame(
            {
                "item_id": pl.Series(group.item_ids, dtype=pl.String),
                "a": natural["a"],
                "b": natural["d"],
                "c": natural.get("c", np.zeros(len(group.item_ids))),
                "d": np.ones(len(group.item_ids)),
            }
        )
        for group, _, natural in found
    ]
    return pl.concat(frames), left_out


def catsim_content(bank: Version) -> Content:
    """Catsim's columns as CSV, the item ids first."""
    table, left_out = catsim_table(bank.consensus(joint=False))
    return Content(csv_writer(table), table.height, left_out)


def jscat_content(bank: Version) -> Content:
    """The same items as jsCAT reads them."""
    table, left_out = catsim_table(bank.consensus(joint=False))
    return Content(json_writer(table.rename({"item_id": "id"})), table.height, left_out)


def mirt_table(consensus: Consensus) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """One row per parameter as in mirt's `mod2values`: item, class, name, value, est; fixed, for use as anchors."""
    found, left_out = _known(consensus, lambda words: True)
    slots = {dimension: f"a{k + 1}" for k, dimension in enumerate(consensus.dimensions)}
    rows: list[tuple[str, str, str, float]] = []
    for group, words, natural in found:
        intercepts = words.intercepts
        names = ["d"] if intercepts.shape[1] == 1 else [f"d{k + 1}" for k in range(intercepts.shape[1])]
        for j, item in enumerate(group.item_ids):
            for dimension, slot in slots.items():
                rows.append((item, words.mirt, slot, natural["a"][j] if dimension == group.dimension else 0.0))
            rows += [(item, words.mirt, name, value) for name, value in zip(names, intercepts[j], strict=True)]
            if len(names) == 1:
                guess = natural["c"][j] if "c" in natural else 0.0
                rows += [(item, words.mirt, "g", guess), (item, words.mirt, "u", 1.0)]
    schema = {"item": pl.String, "class": pl.String, "name": pl.String, "value": pl.Float64}
    table = pl.DataFrame([(i, c, n, float(v)) for i, c, n, v in rows], schema=schema, orient="row")
    return table.with_columns(pl.lit(False).alias("est")), left_out


def mirt_content(bank: Version) -> Content:
    """The parameter table of R mirt as CSV."""
    table, left_out = mirt_table(bank.consensus(joint=False))
    return Content(table.write_csv, table["item"].n_unique(), left_out)


def flexmirt_lines(consensus: Consensus) -> tuple[list[str], tuple[str, ...]]:
    """Lines of a flexMIRT-style parameter file: 1, item, group 1, factors, model code, categories, parameters.

    Code 1 (3PL): logit of guessing, intercept, slopes; code 2 (graded, two categories for right/wrong): intercepts,
    slopes. One slope per dimension, zero but for the item's own.
    """
    found, left_out = _known(consensus, lambda words: words.flexmirt is not None)
    lines = []
    for group, words, natural in found:
        intercepts = words.intercepts
        own = consensus.dimensions.index(group.dimension)
        for j, item in enumerate(group.item_ids):
            if any(c in item for c in "\t\r\n"):
                raise DataError(f"item id {item!r} has a tab or line break, which this format cannot hold")
            slopes = [float(natural["a"][j]) if k == own else 0.0 for k in range(len(consensus.dimensions))]
            guess = [float(np.log(natural["c"][j] / (1 - natural["c"][j])))] if "c" in natural else []
            values = [*guess, *intercepts[j].tolist(), *slopes]
            head = [1, item, 1, len(slopes), words.flexmirt, intercepts.shape[1] + 1]
            lines.append("\t".join([*(str(h) for h in head), *(repr(float(v)) for v in values)]) + "\n")
    return lines, left_out


def flexmirt_content(bank: Version) -> Content:
    """A flexMIRT-style parameter file."""
    lines, left_out = flexmirt_lines(bank.consensus(joint=False))

    def write(path: Path) -> Any:
        return path.write_text("".join(lines), encoding="utf-8")

    return Content(write, len(lines), left_out)
