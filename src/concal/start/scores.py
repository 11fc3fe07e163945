"""What kind of scores each item has, and the response model and coding that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from concal.errors import DataError, first_few

MOST_CATEGORIES = 15
"""Whole-number scores that span more than this are taken as continuous."""
ENOUGH = 30
"""Responses after which an item has shown what scores it has."""
ROUND_MAXIMA = (10.0, 100.0)
"""A largest score in the upper half below one of these was given out of it."""


STEPS_UNSEEN, RARE = 2, 0.1
"""An item whose own highest score is below that of the others by so little, and seen in less than this share of its
responses, is on their scale: where an item ends below theirs, its highest score is as usual as any."""


@dataclass(frozen=True)
class Kind:
    """Items with the same kind of scores.

    Attributes
    ----------
    name : str
        For the group's name.
    model : str
        Proposed response model.
    categories : int or None
        None as well where items differ: the item table then has them.
    max_score : float or None
        What scores are out of, where the model would not know; None as well where items differ.
    says : str
        The scores in words.
    other : str
        When another model would be right.
    """

    name: str
    model: str
    categories: int | None
    max_score: float | None
    says: str
    other: str


def describe_items(rows: pl.DataFrame, max_score: float | None = None) -> pl.DataFrame:
    """Per item its responses and scores, its kind, and how its scores become those the model takes.

    Parameters
    ----------
    rows
        person_id, item_id, score.
    max_score
        Largest possible score of continuous items; default: 1, 10 or 100, or the largest there is.

    Returns
    -------
    polars DataFrame
        item_id, n_responses, low, high, at_high (share of responses), distinct, at_ends, kind, shift, scale: the score
        the model takes is (score - shift) / scale. The kind of ordered scores ends with their number of categories.
    """
    whole = (pl.col("score") % 1 == 0).all()
    items = rows.group_by("item_id", maintain_order=True).agg(
        n_responses=pl.len(),
        low=pl.col("score").min(),
        high=pl.col("score").max(),
        at_high=(pl.col("score") == pl.col("score").max()).mean(),
        distinct=pl.col("score").n_unique(),
        whole=whole,
        at_ends=((pl.col("score") == 0) | (pl.col("score") == 1)).any(),
    )
    if (items["low"] < 0).any():
        bad = items.filter(pl.col("low") < 0)["item_id"]
        raise DataError(
            f"items with negative scores ({bad.len()}): {first_few(bad.to_list())}; a code for a missing answer "
            "(-1, -9)? Leave those rows out, or write NA"
        )
    discrete = pl.col("whole") & (pl.col("high") - pl.col("low") <= MOST_CATEGORIES)
    items = items.with_columns(discrete=discrete)
    counted = items.filter("discrete")
    low = float(counted["low"].min() or 0.0) if counted.height else 0.0  # type: ignore[arg-type]
    items = items.with_columns(shift=pl.when("discrete").then(low).otherwise(0.0))
    top = pl.col("high") - pl.col("shift")
    two = pl.col("discrete") & ((top <= 1) | ((pl.col("distinct") == 2) & (pl.col("low") == pl.col("shift"))))
    maximum = _maximum(items.filter(~pl.col("discrete")), max_score)
    items = items.with_columns(
        scale=pl.when(two).then(pl.max_horizontal(top, 1.0)).when("discrete").then(1.0).otherwise(maximum),
        kind=pl.when(two)
        .then(pl.lit("binary"))
        .when("discrete")
        .then(pl.format("ordered_{}", (top + 1).cast(pl.Int64)))
        .otherwise(pl.lit("continuous")),
    )
    return items.drop("whole", "discrete")


def settle_kinds(items: pl.DataFrame, groups: pl.DataFrame | None, *, declared: bool = False) -> pl.DataFrame:
    """Items with few responses may not show all their scores: they get the kind of those that do.

    Ordered scores become one kind, with a column categories; `lifted` says whose is the scale's of the others.

    That is the widest kind of their group where the item table has groups, else the most usual kind, unless their
    scores are beyond it.

    Parameters
    ----------
    items
        What `describe_items` gave.
    groups
        item_id, group; or None.
    declared
        The item table says what scores are out of: no number is lifted then.
    """
    order = pl.when(pl.col("kind") == "binary").then(2.0).when(pl.col("kind") == "continuous").then(math.inf)
    rank = order.otherwise(pl.col("kind").str.strip_prefix("ordered_").cast(pl.Float64, strict=False))
    known = items if groups is None else items.join(groups, on="item_id", how="left", maintain_order="left")
    known = known.with_columns(rank=rank, sure=pl.col("n_responses") >= ENOUGH)
    base = pl.lit("") if groups is None else pl.col("group").cast(pl.String).fill_null("")
    seen = known.filter("sure") if known["sure"].any() else known
    by = seen.group_by(base.alias("base"), "kind", "rank", "shift", "scale").agg(items=pl.len())
    first = ["rank"] if groups is not None else ["items", "rank"]
    target = by.sort(*first, descending=True).unique("base", keep="first", maintain_order=True)
    wider = target.select("base", to_kind="kind", to_rank="rank", to_shift="shift", to_scale="scale")
    both = known.with_columns(base=base).join(wider, on="base", how="left", maintain_order="left")
    most = pl.when(pl.col("to_kind") == "continuous").then("to_scale").otherwise(pl.col("to_rank") - 1)
    wide_enough = (pl.col("rank") < pl.col("to_rank")) & (pl.col("high") - pl.col("to_shift") <= most)
    fits = ~pl.col("sure") & wide_enough
    columns = [pl.when(fits).then(f"to_{name}").otherwise(name).alias(name) for name in ("kind", "shift", "scale")]
    settled = both.with_columns(columns).select(*items.columns, "base")
    number = pl.col("kind").str.strip_prefix("ordered_").cast(pl.Int64, strict=False)
    settled = settled.with_columns(categories=number, kind=pl.col("kind").str.replace(r"^ordered_\d+$", "ordered"))
    most = pl.col("categories").max().over("base")
    lifted = (most - pl.col("categories")).is_between(1, STEPS_UNSEEN) & (pl.col("at_high") < RARE)
    settled = settled.with_columns(lifted=lifted.fill_null(False) & (not declared))
    return settled.with_columns(categories=pl.when("lifted").then(most).otherwise("categories")).drop("base")


def _maximum(continuous: pl.DataFrame, given: float | None) -> float:
    """What continuous scores are out of."""
    if not continuous.height:
        return 1.0
    high = float(continuous["high"].max())  # type: ignore[arg-type]
    if given is not None:
        if given < high:
            raise DataError(f"--max-score {given:g} is smaller than a score there is, {high:g}")
        return given
    if high <= 1:
        return 1.0
    return next((top for top in ROUND_MAXIMA if top / 2 < high <= top), high)


def kind_of(name: str, own: pl.DataFrame) -> Kind:
    """What a group's items, all of the kind `name`, have in common; `own` is their part of what was settled."""
    scales, numbers = own["scale"].unique().drop_nulls(), own["categories"].unique().drop_nulls().sort()
    scale = float(scales[0]) if scales.len() == 1 and scales[0] != 1 else None
    if name == "binary":
        return Kind(
            name,
            "2pl",
            None,
            scale,
            _says_two(scales, scale),
            '"1pl" for equal slopes, "3pl" where examinees can guess',
        )
    if name == "continuous":
        ends = bool(own["at_ends"].any()) or bool((own["high"] >= own["scale"]).any())
        says = f"continuous scores from 0 to {scale or 1:g}"
        if ends:
            return Kind(name, "ordered_beta", None, scale, says, '"beta" where no score is exactly 0 or 1')
        return Kind(name, "beta", None, scale, says, '"ordered_beta" where scores may be exactly 0 or 1')
    tops = [str(k - 1) for k in numbers]
    says = f"scores 0 to {tops[0]}" if len(tops) == 1 else f"scores 0 to {', '.join(tops[:-1])} or {tops[-1]}"
    return Kind(name, "gpcm", numbers[0] if len(tops) == 1 else None, None, says, '"grm" for ratings')


def _says_two(scales: pl.Series, scale: float | None) -> str:
    return f"scores 0 and {scale or 1:g}" if scales.len() <= 1 else "two scores each"


def recoded(rows: pl.DataFrame, items: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame | None:
    """Responses counted from 0, or None where they are so already; what they are out of goes into the drafts.

    `carried` are further columns of these rows, which stay as they are.
    """
    if not items.filter(pl.col("shift") != 0).height:
        return None
    coded = rows.join(items.select("item_id", "shift"), on="item_id", how="left", maintain_order="left")
    return coded.select("person_id", "item_id", score=pl.col("score") - pl.col("shift")).hstack(carried)
