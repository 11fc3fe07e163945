"""Problems and doubts, collected so that a user hears of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from concal.errors import ConcalError, DataError, first_few


class Findings:
    """Errors stop the work once all checks have spoken; warnings go into the result.

    `blamed` are items of which a problem was noted: what follows from it for their responses is not said as well.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.blamed: set[str] = set()

    def error(self, text: str) -> None:
        """Note a problem."""
        self.errors.append(text)

    def warn(self, text: str) -> None:
        """Note a doubt."""
        self.warnings.append(text)

    def caught(self, error: ConcalError) -> None:
        """Note a problem another part raised."""
        self.errors.append(str(error))

    def stop_if_bad(self) -> None:
        """Raise one `DataError` that lists every problem."""
        if not self.errors:
            return
        noun = "problem" if len(self.errors) == 1 else "problems"
        lines = "".join(f"\n  - {text}" for text in self.errors)
        raise DataError(f"{self.what}: {len(self.errors)} {noun} in the data{lines}")


def some(ids: pl.Series | Sequence[object]) -> str:
    """The first five of many ids and how many more there are, without turning all of them into Python objects."""
    n = len(ids)
    shown = first_few(ids[:5].to_list() if isinstance(ids, pl.Series) else list(ids[:5]))
    return f"{shown} and {n - 5} more" if n > 5 else shown


def rows_of(numbers: pl.Series) -> str:
    """Rows as people find them in a file: a header stands above the first."""
    return f"{'row' if numbers.len() == 1 else 'rows'} {some(numbers)} below the header"
