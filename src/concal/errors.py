"""What can go wrong, by the room it goes wrong in; every message says what, where, and what to do.

What is told beside a table, which has no place for it, is a warning of Python's.
"""

from __future__ import annotations

from collections.abc import Sequence


class ConcalError(Exception):
    """Base of every error concal raises on purpose."""


class SpecError(ConcalError):
    """The programme's specification (bank.toml) is wrong."""


class DataError(ConcalError):
    """Responses or items cannot be used as they are."""


class ConvergenceError(ConcalError):
    """A calibration cannot be run or did not reach a usable state."""


class LinkError(ConcalError):
    """A period cannot be put on the reference metric."""


class BankError(ConcalError):
    """A bank on disk is missing, damaged, locked or asked for something it does not have."""


class DataWarning(UserWarning):
    """Responses were used, but not all of them or not as they stand: what was left out, or taken as something else."""


def first_few(values: Sequence[object], n: int = 5) -> str:
    """Name the first `n` offenders and how many more there are.

    >>> first_few(["a", "b", "c"], n=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(v) for v in values[:n])
    rest = len(values) - n
    return f"{shown} and {rest} more" if rest > 0 else shown


def counted(n: int, noun: str) -> str:
    """``1 item``, ``1,200 items``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
