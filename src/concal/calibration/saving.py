"""What a checkpoint is made of: objects that know how to save and load themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Saved = dict[str, Any]
"""Arrays and plain numbers by name, as they stand in the file."""


class Part(Protocol):
    """Something with a state of its own."""

    def save(self) -> Saved:
        """Everything that changes during a run."""

    def load(self, saved: Saved) -> None:
        """Go to where the saved one was."""


def save_parts(parts: Mapping[str, Part]) -> Saved:
    """All parts' entries, each under ``part/name``."""
    return {f"{part}/{name}": value for part, own in parts.items() for name, value in own.save().items()}


def load_parts(parts: Mapping[str, Part], saved: Saved) -> None:
    """Give every part what it saved."""
    for part, own in parts.items():
        start = f"{part}/"
        own.load({name.removeprefix(start): value for name, value in saved.items() if name.startswith(start)})


class SavedFields:
    """A part whose state is the attributes named in `saved_fields`."""

    saved_fields: tuple[str, ...]

    def save(self) -> Saved:
        """See `Part`."""
        return {name: getattr(self, name) for name in self.saved_fields}

    def load(self, saved: Saved) -> None:
        """See `Part`; numbers come back as numbers."""
        for name in self.saved_fields:
            value = saved[name]
            setattr(self, name, value.item() if getattr(value, "ndim", 1) == 0 else value)
