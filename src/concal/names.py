"""Names that may become part of a path, and names that are only shown."""

from __future__ import annotations

import re

from concal.errors import SpecError

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DEVICES = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(10))}
RESERVED = ("consensus",)  # stands for the bank's consensus in the path of a link


def safe_name_problem(name: object) -> str | None:
    """Why a name cannot be a period or a release, or None."""
    if not isinstance(name, str) or not _SAFE.fullmatch(name):
        return "must be 1 to 64 letters, digits, dots, hyphens or underscores (ASCII), beginning with a letter or digit"
    if name.split(".")[0].lower() in _DEVICES:
        return "is the name of a device on Windows and cannot be a file there"
    if name.endswith("."):
        return "must not end with a dot"
    if name.lower() in RESERVED:
        return "has a meaning of its own in a bank"
    return None


def check_safe_name(name: str, what: str = "period") -> str:
    """A period or release name that may become part of a path, or a `SpecError`.

    >>> check_safe_name("2026Q1")
    '2026Q1'
    """
    if problem := safe_name_problem(name):
        raise SpecError(f"{what} {name!r} {problem}")
    return name


def shown_name_problem(name: str) -> str | None:
    """Why a name cannot be shown (a dimension, a reported score), or None."""
    if not name.strip() or len(name) > 100 or not name.isprintable():
        return "must be 1 to 100 printable characters"
    if name != name.strip():
        return "must not begin or end with a space"
    return None


def group_name_problem(name: str) -> str | None:
    """Why a name cannot be a group, or None."""
    if split_stratum(name)[1] is not None:
        return "ends like the part of a group with its own number of categories; those come from the item table"
    return shown_name_problem(name)


_STRATUM = re.compile(r"(.+) \(([0-9]+) categories\)")


def stratum_name(group: str, categories: int) -> str:
    """What the items of a group with their own number of categories are called.

    >>> stratum_name("essay", 3)
    'essay (3 categories)'
    """
    return f"{group} ({categories} categories)"


def split_stratum(name: str) -> tuple[str, int | None]:
    """The group behind a name, and the number of categories where the name says one.

    >>> split_stratum("essay (3 categories)"), split_stratum("essay")
    (('essay', 3), ('essay', None))
    """
    found = _STRATUM.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, None)


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts names the way people do: digits inside them are numbers.

    >>> sorted(["C12", "C3", "b1"], key=natural_key)
    ['b1', 'C3', 'C12']
    """
    parts = re.split(r"([0-9]+)", name)
    key = tuple((0, int(part), "") if k % 2 else (1, 0, part.casefold()) for k, part in enumerate(parts) if part)
    return (*key, (2, 0, name))
