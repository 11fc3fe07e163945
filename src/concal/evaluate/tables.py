"""The agreement as tables: for the terminal, and in the paper's layout as Markdown and LaTeX.

Every bank is shown beside a mark: the published agreement of a consensus with its pooled fit.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from concal.bank.evaluation import Evaluation
from concal.errors import counted

PAPER: Final[dict[str, dict[str, float]]] = {
    "d": {
        "mean_r": 0.998,
        "mean_rmse": 0.129,
        "sd_r": 0.970,
        "sd_rmse": 0.066,
        "sd_ratio_low": 0.91,
        "sd_ratio_mid": 0.94,
        "sd_ratio_high": 0.94,
    },
    "log_a": {
        "mean_r": 0.991,
        "mean_rmse": 0.081,
        "sd_r": 0.920,
        "sd_rmse": 0.036,
        "sd_ratio_low": 0.96,
        "sd_ratio_mid": 0.95,
        "sd_ratio_high": 0.98,
    },
}
"""Four quarters of an operational test: tens of thousands of items, hundreds of thousands of examinees a period."""

PAPER_SHARE_SCREENED: Final = 0.019
PAPER_ABILITY_MEAN_DIFFERENCE: Final = 0.08  # largest, in units of the reference metric
PAPER_ABILITY_SD_RATIO: Final = (0.98, 1.07)

STATISTICS: Final = (
    ("Post. mean", "r", "mean_r", 3),
    ("Post. mean", "RMSE", "mean_rmse", 3),
    ("Post. SD", "r", "sd_r", 3),
    ("Post. SD", "RMSE", "sd_rmse", 3),
    ("SD ratio", "low expo.", "sd_ratio_low", 2),
    ("SD ratio", "mid expo.", "sd_ratio_mid", 2),
    ("SD ratio", "high expo.", "sd_ratio_high", 2),
)
"""Rows of the paper's table: heading, statistic, our column, decimals."""

LABELS = {"d": "d", "log_a": "log a"}
_LATEX = {"d": "$d$", "log_a": r"$\log a$"}


def paper_table(evaluation: Evaluation) -> pl.DataFrame:
    """The paper's table for this bank: statistics down, parameters and methods across, the published figures beside.

    Cells are text with the paper's number of decimals; a statistic that cannot be computed is empty.
    """
    columns: dict[str, list[str]] = {
        "": [
            heading if k == 0 or STATISTICS[k - 1][0] != heading else "" for k, (heading, *_) in enumerate(STATISTICS)
        ],
        " ": [name for _, name, *_ in STATISTICS],
    }
    for parameter, label in LABELS.items():
        for method in evaluation.methods:
            row = _row(evaluation.overall, method, parameter)
            columns[f"{label} {method}"] = [_number(row.get(column), digits) for *_, column, digits in STATISTICS]
        columns[f"{label} published"] = [_number(PAPER[parameter][column], digits) for *_, column, digits in STATISTICS]
    return pl.DataFrame(columns)


def _row(table: pl.DataFrame, method: str, parameter: str) -> dict[str, float | None]:
    found = table.filter((pl.col("method") == method) & (pl.col("parameter") == parameter))
    return found.row(0, named=True) if found.height else {}


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def notes(evaluation: Evaluation) -> list[str]:
    """What belongs under the table: the screen, abilities, the fallback, the cost; the published figures beside."""
    screened = 1.0 - float(evaluation.pairs["kept"].to_numpy().mean()) if evaluation.pairs.height else 0.0
    lines = [
        f"R-hat screen at {evaluation.max_rhat:g} removed {screened:.1%} of (item, parameter) pairs "
        f"(published {PAPER_SHARE_SCREENED:.1%})."
    ]
    if evaluation.abilities.height:
        worst = float(evaluation.abilities["mean_difference"].abs().to_numpy().max())
        ratio = evaluation.abilities["sd_ratio"].to_numpy()
        low, high = float(ratio.min()), float(ratio.max())
        lines.append(
            f"Ability means differ by at most {worst:.3f} (published {PAPER_ABILITY_MEAN_DIFFERENCE:.2f}), "
            f"ability SD ratios {low:.3f} to {high:.3f} "
            f"(published {PAPER_ABILITY_SD_RATIO[0]:.2f} to {PAPER_ABILITY_SD_RATIO[1]:.2f})."
        )
    for method in evaluation.methods:
        own = evaluation.fallback.get("by_method", {}).get(method)
        if own is not None and own["items"]:
            lines.append(f"Population fallback ({method}): {counted(own['items'], 'item')}, {own['share']:.2%}.")
    cost = evaluation.cost
    if cost.get("pooled_seconds") is not None:
        updates = [s for s in cost.get("update_seconds", {}).values() if s is not None]
        text = f"Pooled fit {cost['pooled_seconds']:.0f} s"
        if cost.get("pooled_peak_mib"):
            text += f", peak memory {cost['pooled_peak_mib']:,.0f} MiB"
        if updates:
            text += f"; updates {min(updates):.0f} to {max(updates):.0f} s a period"
        lines.append(text + ".")
    return lines


def to_markdown(table: pl.DataFrame) -> str:
    """A table of text cells as Markdown, padded so that it also reads as plain text.

    >>> print(to_markdown(pl.DataFrame({"": ["r"], "d": ["0.99"]})))
    |   | d    |
    |---|------|
    | r | 0.99 |
    """
    rows = [list(table.columns), *([("" if v is None else str(v)) for v in row] for row in table.iter_rows())]
    rows = [[cell.strip().replace("|", "\\|") for cell in row] for row in rows]
    width = [max(len(row[k]) for row in rows) for k in range(table.width)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, width, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in width) + "|")
    return "\n".join(lines)


def to_latex(evaluation: Evaluation) -> str:
    """The paper's table as LaTeX (booktabs), one column per parameter and method."""
    sources = [*evaluation.methods, "published"]
    n = len(sources)
    head = " & ".join(rf"\multicolumn{{{n}}}{{c}}{{{_LATEX[p]}}}" for p in LABELS)
    lines = [
        rf"\begin{{tabular}}{{ll{'c' * (n * len(LABELS))}}}",
        r"\toprule",
        rf" & & {head} \\",
        " & & " + " & ".join(sources * len(LABELS)) + r" \\",
        r"\midrule",
    ]
    table = paper_table(evaluation)
    for k, row in enumerate(table.iter_rows()):
        if k and row[0]:
            lines.append(r"\addlinespace")
        lines.append(" & ".join([row[0].replace(". ", r".\ "), _math(row[1]), *row[2:]]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _math(name: str) -> str:
    return f"${name}$" if name == "r" else name
