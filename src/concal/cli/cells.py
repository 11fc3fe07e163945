"""Cells of a table as text: numbers of a column with the same decimals, probabilities as papers write them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")


def column_text(column: pl.Series, decimals: int | None = None) -> list[str]:
    """Cells of a column as text: probabilities as they are written in papers, numbers with the same decimals.

    Whole numbers with given decimals are names (a seed, a version): their thousands are not separated.
    """
    if column.name in ("p", "q") or column.name.endswith(("p_value", "q_value")):
        return [probability_text(value) for value in column.to_list()]
    if column.dtype.is_float():
        places = _decimals(column) if decimals is None else decimals
        return [number_text(value, places) for value in column.to_list()]
    if column.dtype.is_integer() and decimals is not None:
        return ["" if value is None else str(value) for value in column.to_list()]
    return [cell_text(value) for value in column.to_list()]


def probability_text(value: float | None) -> str:
    """A p-value, never "0.000".

    >>> probability_text(0.00004), probability_text(0.0312), probability_text(1.0)
    ('< .001', '.031', '1.000')
    """
    if value is None or math.isnan(value):
        return ""
    if value < 0.001:
        return "< .001"
    return f"{value:.3f}".removeprefix("0")


def _decimals(column: pl.Series) -> int:
    """Three for parameters; fewer where numbers are large, none where all are whole, more where all are tiny."""
    values = [abs(v) for v in column.to_list() if v is not None and math.isfinite(v)]
    largest = max(values, default=0.0)
    if all(v.is_integer() for v in values):
        return 0
    if largest >= 0.01:
        return 3 if largest < 100 else 1
    return min(2 - math.floor(math.log10(largest)), 12)


def number_text(value: float | None, decimals: int) -> str:
    """A number; nothing where there is none, no minus before a zero."""
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def cell_text(value: Any) -> str:
    """A cell without decimals: nothing for null, yes and no, thousands separated, times to the minute."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    return f"{text[:10]} {text[11:16]}" if _TIME.fullmatch(text) else printable(text)


def printable(text: str) -> str:
    """Text without control characters, which could move a terminal's cursor or colours."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def text_width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # wide and combining characters

    return cell_len(text)
