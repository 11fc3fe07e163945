"""Who took part in which period: examinees that come back must count once."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from concal.bank.folder import FolderReader


def persons_of(reader: FolderReader) -> pl.Series:
    """Examinees of a period; empty where another engine's draws came without them."""
    if "persons" not in reader:
        return pl.Series("person_id", [], dtype=pl.String)
    return reader.frame("persons")["person_id"]


def returning(persons: pl.Series, readers: Iterable[FolderReader]) -> pl.Series:
    """Which of these examinees any of the periods has; one period at a time, so memory does not grow with the past."""
    back = pl.Series("person_id", [], dtype=pl.String)
    for reader in readers:
        here = persons_of(reader)
        if here.len():
            back = pl.concat([back, persons.filter(persons.is_in(here.implode()))])
    return back.unique().sort()
