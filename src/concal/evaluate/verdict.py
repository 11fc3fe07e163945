"""Is the agreement with the pooled fit good enough, and if not, what is the likely cause?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from concal.bank.evaluation import Evaluation
from concal.evaluate.pairs import TERTILES

MOST_DISTANCE = 0.5
"""Root mean square distance of posterior means in pooled SDs. On the programmes of the validation, drifting ones
included, the joint method has .06 to .16 and the analytic one .1 to .35."""
SD_RATIOS = (0.9, 1.1)
"""Mean SD ratios of a tertile outside of these: intervals are a tenth too short or too long."""


def poor_agreement(evaluation: Evaluation, method: str | None = None) -> tuple[str, ...]:
    """What is poor about the agreement of one method, with the bound and the likely cause; nothing where it is good.

    Parameters
    ----------
    evaluation : Evaluation
    method : str, optional
        Default: the first of the evaluation's.
    """
    chosen = method or next(iter(evaluation.methods), "")
    return tuple(
        f"{text} Likely cause: {_cause(evaluation, chosen)}"
        for text in (*_far(evaluation, chosen), *_wrong_spread(evaluation, chosen))
    )


def _far(evaluation: Evaluation, method: str) -> Iterator[str]:
    for row in evaluation.distance.filter(pl.col("method") == method).iter_rows(named=True):
        if row["distance"] > MOST_DISTANCE:
            yield (
                f"{method}: posterior means of {row['parameter']} are {row['distance']:.2f} pooled SDs from the pooled "
                f"fit's (root mean square over {row['n']:,} items; more than {MOST_DISTANCE} is poor): "
                f"{row['by_links']:.2f} by the links, {row['by_items']:.2f} by the items."
            )


def _wrong_spread(evaluation: Evaluation, method: str) -> Iterator[str]:
    low, high = SD_RATIOS
    for row in evaluation.overall.filter(pl.col("method") == method).iter_rows(named=True):
        ratios = {name: row[f"sd_ratio_{name}"] for name in TERTILES}
        off = {name: r for name, r in ratios.items() if r is not None and not low <= r <= high}
        if off:
            found = ", ".join(f"{r:.2f} at {name} exposure" for name, r in off.items())
            yield f"{method}: SDs of {row['parameter']} are {found} of the pooled fit's (poor outside {low} to {high})."


def _cause(evaluation: Evaluation, method: str) -> str:
    """The first that applies: the yardstick, the links, thin periods, the items."""
    cost = evaluation.cost
    if not cost.get("pooled_converged", True):
        return (
            f"the pooled fit has not converged (R-hat {cost.get('pooled_max_rhat', float('nan')):.2f}): run it longer "
            "(calibration.max_sweeps) before judging the consensus."
        )
    distance = evaluation.distance.filter((pl.col("method") == method) & (pl.col("distance") > MOST_DISTANCE))
    if distance.height and (distance["by_links"] > distance["by_items"]).any():
        return (
            "the links: anchors that drift are kept from pulling them, and a pooled fit does no such thing. Look at "
            "`concal drift BANK`, exclude or split what moved, and evaluate again."
        )
    share = evaluation.fallback.get("by_method", {}).get(method, {}).get("share", 0.0)
    if share > 0.05:
        return f"periods too thin: {share:.1%} of the answered items have the population fallback."
    if method != "joint":
        return (
            f"the method: try `concal combine BANK --method joint`, which stays with the pooled fit where {method} "
            "does not."
        )
    return (
        "items that differ between periods, or periods of a few hundred examinees: look at `concal drift BANK` and at "
        "the items furthest away (`pairs` of the evaluation)."
    )
