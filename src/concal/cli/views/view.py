"""A table as a command shows it, and columns that several tables have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TEXT, WHOLE, NUMBER, FLAG = "string", "integer", "number", "boolean"
NO_PERIOD = "the bank has no period yet; `concal add` brings one"


class Column(NamedTuple):
    """One column of a table: type in JSON, what it means; on a terminal its heading (default: its name), decimals."""

    kind: str
    says: str
    heading: str = ""
    decimals: int | None = None


@dataclass(frozen=True)
class View:
    """A table as a command shows it.

    Attributes
    ----------
    title : str
        Above the table.
    empty : str
        Said instead of a table without rows.
    columns : dict of name -> Column
        All columns the table may have; others (a model's further parameters) are numbers.
    shown : tuple of str
        Columns of the terminal; ``--full`` shows all.
    keys : tuple of str
        Columns that say which row it is; their ids are never cut.
    order : tuple of str
        Sorted by these, numbers inside ids as numbers (C3 before C12); () leaves the table's own order.
    further : tuple of str
        Types in JSON of columns that have no line here.
    note : str
        Below the table on a terminal: its order, and what a reader may mistake.
    """

    title: str
    empty: str
    columns: Mapping[str, Column]
    shown: tuple[str, ...]
    keys: tuple[str, ...] = ("item_id",)
    order: tuple[str, ...] = field(default=())
    further: tuple[str, ...] = (NUMBER,)
    note: str = ""

    def headings(self) -> dict[str, str]:
        """Headings by column."""
        return {name: column.heading or name.replace("_", " ") for name, column in self.columns.items()}

    def decimals(self) -> dict[str, int]:
        """Decimals by column, where they are fixed."""
        return {name: column.decimals for name, column in self.columns.items() if column.decimals is not None}

    def schema(self) -> dict[str, Any]:
        """JSON schema of what ``--json`` prints: an array of rows."""
        properties = {
            name: {"type": c.kind if name in self.keys else [c.kind, "null"], "description": c.says}
            for name, c in self.columns.items()
        }
        row = {
            "type": "object",
            "properties": properties,
            "required": list(self.keys),
            "additionalProperties": {"type": [*self.further, "null"]},
        }
        return {"type": "array", "items": row}


ITEM = Column(TEXT, "id of the item", "item")
PERIOD = Column(TEXT, "name of the period", "period")
GROUP = Column(TEXT, "item group of bank.toml", "group")
DIMENSION = Column(TEXT, "latent dimension", "dimension")
MODEL = Column(TEXT, "response model", "model")
SOURCE = Column(TEXT, "consensus, fallback (population, the responses do not identify it) or predicted", "source")
RESPONSES = Column(WHOLE, "responses behind the row", "responses")
PERIOD_COUNT = Column(WHOLE, "periods that saw the item", "periods")
UNCONVERGED = Column(TEXT, "periods in which its chains, or those of the whole period, had not converged")
