"""One thing about a bank that needs attention."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Notice:
    """One thing to look at.

    Attributes
    ----------
    level : "problem" or "doubt"
    section : str
        Of the report.
    text : str
    """

    level: str
    section: str
    text: str
