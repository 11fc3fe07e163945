"""What a parsed formula consists of."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

NAME = re.compile(r"[^\W\d][\w.]*")
"""Column names that need no backticks."""


@dataclass(frozen=True)
class Column:
    """A column of the item table: a number, or a category where it holds text."""

    name: str

    def __str__(self) -> str:
        return self.name if NAME.fullmatch(self.name) else f"`{self.name}`"


@dataclass(frozen=True)
class Number:
    """A constant inside arithmetic."""

    value: float

    def __str__(self) -> str:
        return str(int(self.value)) if self.value.is_integer() and abs(self.value) < 1e15 else repr(self.value)


@dataclass(frozen=True)
class Operation:
    """left op right."""

    op: str
    left: Arithmetic
    right: Arithmetic

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


@dataclass(frozen=True)
class Negation:
    """-of."""

    of: Arithmetic

    def __str__(self) -> str:
        return f"(-{self.of})"


@dataclass(frozen=True)
class Transform:
    """log, sqrt, center or scale of arithmetic."""

    name: str
    of: Arithmetic

    def __str__(self) -> str:
        return f"{self.name}({_bare(self.of)})"


@dataclass(frozen=True)
class Category:
    """C(column): a category whatever the column holds."""

    column: Column

    def __str__(self) -> str:
        return f"C({self.column})"


@dataclass(frozen=True)
class Basis:
    """bs or poly: several columns from one."""

    name: str
    of: Arithmetic
    df: int
    degree: int

    def __str__(self) -> str:
        if self.name == "poly":
            return f"poly({_bare(self.of)}, {self.degree})"
        degree = "" if self.degree == 3 else f", degree={self.degree}"
        return f"bs({_bare(self.of)}, df={self.df}{degree})"


Arithmetic = Column | Number | Operation | Negation | Transform
Factor = Column | Operation | Negation | Transform | Category | Basis
Term = tuple[Factor, ...]


@dataclass(frozen=True)
class Formula:
    """A parsed formula: its terms without the intercept, main effects before interactions."""

    text: str
    terms: tuple[Term, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the item table it reads, in order of appearance."""
        found = [name for term in self.terms for factor in term for name in columns_of(factor)]
        return tuple(dict.fromkeys(found))

    def without(self, columns: Collection[str]) -> Formula:
        """The terms that read none of these columns.

        Examples
        --------
        >>> from concal.formula import parse_formula
        >>> parse_formula("~ length * C(kind) + log(age)").without(["length"]).text
        '~ C(kind) + log(age)'
        """
        lost = set(columns)
        kept = tuple(term for term in self.terms if not any(lost & set(columns_of(factor)) for factor in term))
        text = " + ".join(":".join(map(factor_name, term)) for term in kept)
        return Formula(f"~ {text or 1}", kept)


def factor_name(factor: Factor) -> str:
    """How a factor is called in names of design columns."""
    return f"I({_bare(factor)})" if isinstance(factor, Operation | Negation) else str(factor)


def _bare(node: Arithmetic) -> str:
    text = str(node)
    return text[1:-1] if isinstance(node, Operation | Negation) else text


def parts_of(node: Factor | Arithmetic) -> Iterator[Factor]:
    """A part of a formula and every part inside it, constants left out."""
    if not isinstance(node, Number):
        yield node
    for name in ("left", "right", "of", "column"):
        inner = getattr(node, name, None)
        if inner is not None:
            yield from parts_of(inner)


def columns_of(node: Factor | Arithmetic) -> Iterator[str]:
    """Columns of the item table a part of a formula reads."""
    return (part.name for part in parts_of(node) if isinstance(part, Column))
