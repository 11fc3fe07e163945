"""The formats items are exported in.

===========  ==================================================================================================
csv, excel   one row per item for people: natural parameters, SDs, source; text cells that a spreadsheet would run
             as a formula get a leading apostrophe (`concal.bank.exchange.export.read_export` takes it off again)
parquet,     the same columns, ids unchanged
json
catsim       the matrix catsim reads (a, b, c, d by column) as CSV with the item ids first; right/wrong items
jscat        the same items as a JSON array that jsCAT reads: id, a, b, c, d
mirt         the parameter table of R mirt (`mod2values`-style: item, class, name, value), slope-intercept form
flexmirt     a flexMIRT-style parameter (anchor) file, tab separated
arviz        consensus draws of all items, or with a period that period's draws (netCDF or Zarr)
===========  ==================================================================================================

A new format is a line here and its function in `concal.bank.exchange.export.CONTENT`: from a version of a bank to
`Content`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, NamedTuple


class Format(StrEnum):
    """A format's name."""

    csv = auto()
    parquet = auto()
    json = auto()
    excel = auto()
    catsim = auto()
    jscat = auto()
    mirt = auto()
    flexmirt = auto()
    arviz = auto()


FORMATS = tuple(kind.value for kind in Format)
SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".xlsx": "excel", ".nc": "arviz", ".zarr": "arviz"}


class Content(NamedTuple):
    """What an export writes.

    Attributes
    ----------
    write : function of a path
    items : int
    left_out : tuple of str
        Items the receiving software has no model for.
    """

    write: Callable[[Path], Any]
    items: int
    left_out: tuple[str, ...] = ()
