"""Charts of a bank. Every function returns an Altair chart; `concal.plot.tables` has the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from concal.bank.evaluation import Evaluation
from concal.bank.version import Version
from concal.errors import DataError, counted
from concal.plot.tables import curve_table

if TYPE_CHECKING:
    import altair

MOST_POINTS = 4000
"""A chart of points shows at most so many, drawn at random with a fixed seed; its title says so."""


def _altair() -> Any:
    try:
        import altair
    except ImportError:
        raise DataError("plots need the package altair: pip install 'concal[plot]'") from None
    return altair


def curves(bank: Version, ids: str | Sequence[str], *, periods: bool = True) -> altair.Chart:
    """Expected-score curves of items with their 90 % bands, and the periods' own curves beside them, linked.

    Parameters
    ----------
    bank
        A bank, or one of its versions.
    ids
        Items; one chart beside the other.
    periods
        Also show the curve of each period.
    """
    alt = _altair()
    table = curve_table(bank, [ids] if isinstance(ids, str) else ids, periods=periods)
    base = alt.Chart().encode(x=alt.X("theta:Q", title="theta, reference metric"))
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title="expected score"), y2="high:Q")
    line = base.mark_line().encode(
        y="expected:Q",
        color=alt.Color("period:N", title="posterior of"),
        size=alt.condition("datum.period == 'consensus'", alt.value(3), alt.value(1)),
        tooltip=["period", alt.Tooltip("theta", format=".1f"), alt.Tooltip("expected", format=".3f")],
    )
    layered = alt.layer(band.transform_filter("datum.period == 'consensus'"), line, data=table)
    return layered.properties(width=260, height=200).facet(alt.Facet("item_id:N", title=None), columns=3)


def information(bank: Version, ids: str | Sequence[str] | None = None) -> altair.Chart:
    """What the bank (or the items `ids` together) can tell about theta: information by ability, with its 90 % band."""
    alt = _altair()
    table = bank.information([ids] if isinstance(ids, str) else ids).curves
    base = alt.Chart().encode(x=alt.X("theta:Q", title="theta, reference metric"), color="dimension:N")
    band = base.mark_area(opacity=0.2).encode(
        y=alt.Y("information_low:Q", title="information"), y2="information_high:Q"
    )
    line = base.mark_line().encode(y="information:Q")
    n = "all items" if ids is None else counted(1 if isinstance(ids, str) else len(ids), "item")
    return alt.layer(band, line, data=table, title=f"Information, {n}")


def links(bank: Version) -> altair.Chart:
    """A and B of every period with intervals of two SDs."""
    alt = _altair()
    wide = bank.links()
    parts = [
        wide.select(
            "period",
            "dimension",
            constant=pl.lit(name),
            value=pl.col(name),
            low=pl.col(name) - 2 * pl.col(f"{name}_sd"),
            high=pl.col(name) + 2 * pl.col(f"{name}_sd"),
        )
        for name in ("A", "B")
    ]
    base = alt.Chart().encode(x=alt.X("period:N", title=None, sort=list(bank.period_names)), color="dimension:N")
    offset = {"xOffset": "dimension:N"}
    bars = base.mark_rule().encode(y=alt.Y("low:Q", title=None, scale=alt.Scale(zero=False)), y2="high:Q", **offset)
    points = base.mark_point(filled=True, size=60).encode(y="value:Q", **offset)
    chart = alt.layer(bars, points, data=pl.concat(parts)).properties(width=260, height=200)
    return chart.facet(alt.Column("constant:N", title="theta on the reference metric = A theta + B")).resolve_scale(
        y="independent"
    )


def drift(bank: Version, *, everything: bool = False) -> altair.Chart:
    """Items that moved (or all that were tested): change of the expected score by the responses behind it."""
    alt = _altair()
    table = bank.drift()
    shown = table if everything else table.filter("drifted")
    points, note = _thinned(shown.select("item_id", "period", "score_shift", "n_responses", "drifted", "item_q_value"))
    return (
        alt.Chart(points, title=f"Drift of {counted(shown['item_id'].n_unique(), 'item')}{note}")
        .mark_point(filled=True)
        .encode(
            x=alt.X("n_responses:Q", title="responses in the period", scale=alt.Scale(type="symlog")),
            y=alt.Y("score_shift:Q", title="change of the expected score"),
            color=alt.Color("period:N", sort=list(bank.period_names)),
            opacity=alt.condition("datum.drifted", alt.value(1.0), alt.value(0.25)),
            tooltip=["item_id", "period", alt.Tooltip("score_shift", format=".3f"), "item_q_value"],
        )
    )


def agreement(evaluation: Evaluation, *, method: str | None = None) -> altair.Chart:
    """Consensus against pooled fit: posterior means, parameter by parameter, with the line of identity."""
    alt = _altair()
    asked = method or evaluation.methods[0]
    pairs = evaluation.pairs.filter("kept", method=asked) if "method" in evaluation.pairs.columns else evaluation.pairs
    points, note = _thinned(pairs.select("item_id", "parameter", "mean", "pooled_mean", "sd", "pooled_sd"))
    base = alt.Chart().encode(x=alt.X("pooled_mean:Q", title="pooled fit"))
    dots = base.mark_point(opacity=0.5).encode(
        y=alt.Y("mean:Q", title=asked), tooltip=["item_id", "mean", "pooled_mean"]
    )
    identity = base.mark_line(color="black", strokeDash=[4, 4]).encode(y="pooled_mean:Q")
    chart = alt.layer(dots, identity, data=points).properties(width=220, height=220)
    title = f"Posterior means, {asked} and pooled fit{note}"
    return chart.facet("parameter:N", columns=3, title=title).resolve_scale(x="independent", y="independent")


def abilities(bank: Version) -> altair.Chart:
    """Distributions of the examinees' abilities, period by period, on the reference metric."""
    alt = _altair()
    table = bank.abilities().filter(pl.col("n_responses") > 0)
    step = 0.25
    counts = (
        table.with_columns(theta=(pl.col("theta") / step).round() * step)
        .group_by("period", "dimension", "theta")
        .len("examinees")
        .with_columns(share=pl.col("examinees") / pl.col("examinees").sum().over("period", "dimension"))
        .sort("period", "dimension", "theta")
    )
    chart = (
        alt.Chart(counts)
        .mark_line(interpolate="monotone")
        .encode(
            x=alt.X("theta:Q", title="theta, reference metric"),
            y=alt.Y("share:Q", title="share of examinees"),
            color=alt.Color("period:N", sort=list(bank.period_names)),
        )
    )
    return chart.properties(width=260, height=180).facet(alt.Facet("dimension:N", title=None), columns=2)


def _thinned(table: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """At most `MOST_POINTS` rows, and what the title says of it."""
    if table.height <= MOST_POINTS:
        return table, ""
    return table.sample(MOST_POINTS, seed=1), f" ({MOST_POINTS:,} of {table.height:,} points)"
