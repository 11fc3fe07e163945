"""What about a bank needs attention, in words, with the section of the report that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from concal.bank.evaluation import Evaluation
from concal.calibration.result import Calibration
from concal.consensus.drift.alarms import Alarm
from concal.consensus.result import Consensus
from concal.data.linkage import Linkage
from concal.evaluate.misfit import change_in_words, misfit_notices
from concal.evaluate.notice import Notice
from concal.evaluate.verdict import poor_agreement
from concal.linking.result import Link

MOST_FALLBACK = 0.05
"""Share of answered items in the population fallback above which periods are called too thin."""


def attention(
    calibrations: Mapping[str, Calibration],
    links: Mapping[str, Link],
    consensus: Consensus,
    linkage: Linkage | None,
    drift: pl.DataFrame,
    evaluation: Evaluation | None,
    *,
    version: int,
    alarms: Sequence[Alarm],
    acts: pl.DataFrame,
    fit: pl.DataFrame,
    pairs: pl.DataFrame,
    dif: pl.DataFrame,
) -> tuple[Notice, ...]:
    """Everything the stages warned about, and what only the whole bank shows; problems first.

    `alarms` are the bank's contradictions (`Version.alarms`), `acts` its decisions (`Version.acts`), `fit`, `pairs`
    and `dif` what it says of the items' fit and fairness (`Version.fit`, `Version.fit_pairs`, `Version.dif`).
    """
    found = [Notice("problem", alarm.section, alarm.text) for alarm in alarms]
    found += _calibrations(calibrations)
    found += [Notice("doubt", "links", f"{p}: {text}") for p, link in links.items() for text in link.warnings]
    if linkage is not None:
        found += [Notice("problem", "data", text) for text in linkage.problems()]
    found += [Notice("doubt", "consensus", text) for text in consensus.warnings]
    if consensus.fallback_share > MOST_FALLBACK:
        found.append(
            Notice(
                "doubt",
                "consensus",
                f"{consensus.fallback_share:.1%} of the answered items have the population fallback: the periods say "
                "little about them beyond the population model",
            )
        )
    moved = drifted(drift)
    if moved.height:
        n, first = moved["item_id"].n_unique(), moved.row(0, named=True)
        found.append(
            Notice(
                "doubt",
                "drift",
                f"{n:,} {'item' if n == 1 else 'items'} drifted in at least one period; most consequential: "
                f"{first['item_id']!r} in {first['period']!r} ({change_in_words(first)} in "
                "the expected score); `concal exclude` or `concal split` acts on them",
            )
        )
    found += misfit_notices(fit, pairs, dif)
    found += _resting(acts)
    if evaluation is None:
        found.append(Notice("doubt", "agreement", "no pooled fit to compare with yet; `concal evaluate` makes one"))
    else:
        method = consensus.method if consensus.method in evaluation.methods else None
        found += [Notice("problem", "agreement", text) for text in poor_agreement(evaluation, method)]
    if evaluation is not None and evaluation.version is not None and evaluation.version + 1 < version:
        found.append(
            Notice(
                "doubt",
                "agreement",
                f"the pooled fit compares version {evaluation.version}; the bank is at {version} now",
            )
        )
    late = {"drift": 0, "consensus": 1, "links": 2, "agreement": 3}  # the whole bank before single periods
    order = sorted(dict.fromkeys(found), key=lambda n: (n.level != "problem", late.get(n.section, 4)))
    return tuple(order)


def drifted(drift: pl.DataFrame) -> pl.DataFrame:
    """The rows of a drift table in which an item moved."""
    return drift.filter(pl.col("drifted")) if "drifted" in drift.columns else drift.clear()


def _resting(acts: pl.DataFrame) -> Iterator[Notice]:
    """Acts that name periods the bank does not have."""
    for row in acts.filter(pl.col("idle")).iter_rows(named=True):
        whose = f" for {row['person_group']}" if row["person_group"] else ""
        yield Notice(
            "doubt",
            "drift",
            f"{row['act']} of {row['item_id']!r} in {row['periods']}{whose} rests, because the bank has no such "
            f"period; it holds again when one comes (`concal {row['act']} --undo` forgets it)",
        )


def _calibrations(calibrations: Mapping[str, Calibration]) -> Iterator[Notice]:
    for period, calibration in calibrations.items():
        reached = calibration.convergence
        if not reached.converged:
            yield Notice(
                "problem",
                "calibration",
                f"{period}: taken although it has not converged (largest population R-hat "
                f"{reached.max_rhat_population:.3f}, smallest ESS {reached.min_ess_population:.0f}); replace it "
                "with a longer run (`concal add --replace --max-sweeps`)",
            )
        for text in reached.warnings:
            yield Notice("doubt", "calibration", f"{period}: {text}")
