"""Names of periods, releases and evaluations: they become parts of paths, so they are checked first."""

from __future__ import annotations

import re

from concal.errors import BankError

_NAME = re.compile(r"\A[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?\Z")
_DEVICES = re.compile(r"\A(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?\Z", re.IGNORECASE)


def is_safe_name(value: object) -> bool:
    """Whether a name may become part of a path on every system."""
    return isinstance(value, str) and bool(_NAME.match(value)) and not _DEVICES.match(value) and ".." not in value


def check_name(value: object, what: str) -> str:
    """Return the name, or say why it cannot be one.

    Parameters
    ----------
    value
        What the user gave.
    what
        ``"period"``, ``"release"`` or ``"evaluation"``, for the message.
    """
    if isinstance(value, str) and is_safe_name(value):
        return value
    raise BankError(
        f"{str(value)[:80]!r} cannot be the name of a {what}: use 1 to 64 letters a-z, digits, '.', '-' and '_', "
        "beginning with a letter or digit, and no device name such as CON; for example '2026Q1'"
    )
