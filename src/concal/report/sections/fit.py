"""Items off their curve, pairs that depend on each other, items that groups of examinees do not answer alike."""

from __future__ import annotations

import numpy as np
import polars as pl

from concal.evaluate.misfit import dependent, differing, misfits
from concal.report.pack import Block
from concal.report.printed import Printed, printed
from concal.report.section import Section
from concal.report.view import View

MOST = 50  # rows of a table; the commands list all
_FIT = ("item_id", "group", "period", "n_responses", "misfit", "infit", "outfit", "p_value", "q_value")
_PAIRS = ("item_id", "other_id", "period", "n_common", "q3", "q_value")
_DIF = (
    *("item_id", "person_group", "n_responses", "direction", "score_size", "score_shift"),
    *("d_shift", "d_shift_sd", "log_a_shift", "log_a_shift_sd", "item_q_value"),
)


def section(view: View, block: Block) -> Section:
    """What was tested, and what stands out."""
    fit, dif = view.fit, view.dif
    return Section(
        "fit",
        "Fit and fairness",
        printed={
            "n_tested": fit["item_id"].n_unique() if fit.height else 0,
            "share_05": _share(fit),
            "misfits": _shown(misfits(fit), _FIT),
            "pairs": _shown(dependent(view.fit_pairs), _PAIRS),
            "n_groups": dif["person_group"].n_unique() if dif.height else 0,
            "n_compared": dif["item_id"].n_unique() if dif.height else 0,
            "dif": _shown(differing(dif), _DIF),
        },
    )


def _share(fit: pl.DataFrame) -> str:
    """Of the tests with a p-value at or below .05, in per cent."""
    p = fit["p_value"].drop_nulls().to_numpy() if fit.height else np.zeros(0)
    return f"{float(np.mean(p <= 0.05)):.1%}" if p.size else ""


def _shown(table: pl.DataFrame, columns: tuple[str, ...]) -> Printed | None:
    return printed(table.select(columns).head(MOST)) if table.height else None
