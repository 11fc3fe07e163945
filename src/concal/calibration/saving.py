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


class Saving:
    """A part whose state is the attributes named in `saved_fields`, and parts of its own under ``part/name``.

    What is kept in another way, a class adds to both methods.
    """

    saved_fields: tuple[str, ...] = ()

    def parts(self) -> Mapping[str, Part]:
        """Its own parts, by the name they are saved under."""
        return {}

    def save(self) -> Saved:
        """See `Part`."""
        parts = {f"{part}/{name}": value for part, own in self.parts().items() for name, value in own.save().items()}
        return {name: getattr(self, name) for name in self.saved_fields} | parts

    def load(self, saved: Saved) -> None:
        """See `Part`; numbers come back as numbers."""
        for name in self.saved_fields:
            value = saved[name]
            setattr(self, name, value.item() if getattr(value, "ndim", 1) == 0 else value)
        for part, own in self.parts().items():
            start = f"{part}/"
            own.load({name.removeprefix(start): value for name, value in saved.items() if name.startswith(start)})
