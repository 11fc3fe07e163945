"""What the fit of items means for the attention list and for single items, in words: misfit, dependence, fairness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from concal.calibration.fit.items import FALLS
from concal.evaluate.notice import Notice

LEAST = 0.02
"""Misfit of the expected score below which a flagged item is not worth anybody's time."""
DEPENDENT = 0.2
"""Q3 from which a pair of items is called dependent; the customary mark."""


def misfits(fit: pl.DataFrame) -> pl.DataFrame:
    """The rows of a fit table that deserve a look: flagged, and large enough to matter."""
    return fit.filter(pl.col("flagged") & (pl.col("misfit") >= LEAST))


def falling(fit: pl.DataFrame) -> pl.DataFrame:
    """Those of them whose score falls with the ability, in order of how surely: most likely their key is reversed."""
    bad = misfits(fit)
    return bad if bad.is_empty() else bad.filter(pl.col("falling_p") <= FALLS).sort("falling_p", maintain_order=True)


def dependent(pairs: pl.DataFrame) -> pl.DataFrame:
    """The rows of a table of pairs that depend on each other."""
    return pairs.filter((pl.col("q_value") <= 0.05) & (pl.col("q3") >= DEPENDENT))


def differing(dif: pl.DataFrame) -> pl.DataFrame:
    """The rows of a DIF table in which an item differs, and by enough to matter."""
    return dif.filter(pl.col("flagged") & (pl.col("score_size") >= LEAST))


def misfit_notices(fit: pl.DataFrame, pairs: pl.DataFrame, dif: pl.DataFrame) -> Iterator[Notice]:
    """Misfit, local dependence and differential item functioning, one notice each."""
    bad = misfits(fit)
    if bad.height:
        n, first = bad["item_id"].n_unique(), bad.row(0, named=True)
        yield Notice(
            "doubt",
            "fit",
            f"{n:,} {'item does not follow its' if n == 1 else 'items do not follow their'} curve; largest misfit: "
            f"{first['item_id']!r} in {first['period']!r} ({first['misfit']:.2f} of the score); "
            "`concal fit` lists them",
        )
    fall = falling(fit)
    if fall.height:
        n, first = fall["item_id"].n_unique(), fall.row(0, named=True)
        yield Notice(
            "problem",
            "fit",
            f"the score of {n:,} {'item falls' if n == 1 else 'items falls'} with the ability: {first['item_id']!r} in "
            f"{first['period']!r}{' first of all' if n > 1 else ''}; is the key reversed?",
        )
    both = dependent(pairs)
    if both.height:
        first = both.row(0, named=True)
        yield Notice(
            "doubt",
            "fit",
            f"{both.height:,} {'pair of items depends' if both.height == 1 else 'pairs of items depend'} on each other "
            f"beyond the ability; most: {first['item_id']!r} and {first['other_id']!r} in {first['period']!r} "
            f"(Q3 {first['q3']:.2f}); `concal fit --pairs` lists them",
        )

    unlike = differing(dif)
    if unlike.height:
        n, first = unlike["item_id"].n_unique(), unlike.row(0, named=True)
        yield Notice(
            "doubt",
            "fit",
            f"{n:,} {'item is' if n == 1 else 'items are'} not answered alike by groups of examinees of equal ability; "
            f"most consequential: {first['item_id']!r} for {first['person_group']!r} ({change_in_words(first)} in "
            "the expected score); `concal dif` lists them",
        )


def change_in_words(row: Mapping[str, Any]) -> str:
    """How an expected score differs: easier or harder by its mean change, or, where that is small, another shape.

    >>> change_in_words({"direction": "harder", "score_shift": -0.09, "score_size": 0.1})
    'harder by 0.09'
    >>> change_in_words({"direction": "harder", "score_shift": -0.01, "score_size": 0.1})
    'another shape of the curve, by 0.10'
    """
    shift, size = abs(row["score_shift"]), row["score_size"]
    return f"{row['direction']} by {shift:.2f}" if 2 * shift >= size else f"another shape of the curve, by {size:.2f}"


def misfit_flags(fit: pl.DataFrame, pairs: pl.DataFrame, dif: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """(item id, what is worth knowing about it)."""
    fall = {(row["item_id"], row["period"]) for row in falling(fit).iter_rows(named=True)}
    for row in misfits(fit).iter_rows(named=True):
        falls = "; it falls with the ability: is the key reversed?" if (row["item_id"], row["period"]) in fall else ""
        yield row["item_id"], f"misfit in {row['period']}: {row['misfit']:.2f} of the score{falls}"
    for row in dependent(pairs).iter_rows(named=True):
        for item, other in ((row["item_id"], row["other_id"]), (row["other_id"], row["item_id"])):
            yield item, f"depends on {other} in {row['period']}: Q3 {row['q3']:.2f}"
    for row in differing(dif).iter_rows(named=True):
        yield row["item_id"], f"for {row['person_group']} {change_in_words(row)} of the score"
