"""What a section of the report is.

A section has a file in `report/sections/` for its numbers, ``templates/sections/<key>.html`` for its words and tables,
and ``templates/sections/<key>.js`` for its figures, if it has some. A panel of the item explorer has a file in
`report/panels/` and ``templates/panels/<key>.js``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Attributes
    ----------
    key : str
        Its anchor on the page and the name of its templates.
    title : str
    printed : mapping
        What the section's HTML template reads, by name: texts and `Printed` tables.
    drawn : mapping
        What its JavaScript reads as ``section("<key>")``: plain data, and references that a `Block` gave for arrays
        and tables.
    """

    key: str
    title: str
    printed: Mapping[str, Any] = field(default_factory=dict)
    drawn: Mapping[str, Any] = field(default_factory=dict)
