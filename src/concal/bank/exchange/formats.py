"""The formats items are exported in: each by the function that makes its content, read only when it is asked for.

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

A new format is a line here and its function: from a version of a bank to `Content`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from concal.bank.version import Version


class Format(StrEnum):
    """A format's name, and where the function of its content is."""

    place: str

    def __new__(cls, name: str, place: str) -> Format:
        """A member that is its name."""
        member = str.__new__(cls, name)
        member._value_, member.place = name, place
        return member

    csv = "csv", "concal.bank.exchange.export:csv_content"
    parquet = "parquet", "concal.bank.exchange.export:parquet_content"
    json = "json", "concal.bank.exchange.export:json_content"
    excel = "excel", "concal.bank.exchange.export:excel_content"
    catsim = "catsim", "concal.bank.exchange.software:catsim_content"
    jscat = "jscat", "concal.bank.exchange.software:jscat_content"
    mirt = "mirt", "concal.bank.exchange.software:mirt_content"
    flexmirt = "flexmirt", "concal.bank.exchange.software:flexmirt_content"
    arviz = "arviz", "concal.bank.exchange.export:arviz_content"


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


def content_of(bank: Version, kind: str) -> Content:
    """A version's items in one of the formats."""
    module, name = Format[kind].place.split(":")
    made: Content = getattr(import_module(module), name)(bank)
    return made
