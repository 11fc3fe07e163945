"""Features of one group's items, evaluated under a state that all periods share."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal

import numpy as np
import polars as pl

from concal.errors import DataError, counted, first_few
from concal.formula.basis import (
    Array,
    State,
    code_levels,
    learn_levels,
    learn_polynomial,
    learn_scale,
    learn_spline,
    level_text,
    polynomial_basis,
    spline_basis,
)
from concal.formula.nodes import (
    Arithmetic,
    Basis,
    Category,
    Column,
    Factor,
    Formula,
    Negation,
    Number,
    Operation,
    Transform,
    factor_name,
)


def missing(column: pl.Series) -> pl.Series:
    """Which cells of a feature's column are empty or no finite number."""
    empty = column.is_null()
    return empty | ~column.is_finite().fill_null(False) if column.dtype.is_float() else empty


class Features:
    """The features of one group's items, evaluated under a state."""

    def __init__(
        self,
        items: pl.DataFrame,
        group: str,
        state: State,
        unseen_level: Literal["error", "mean"] = "error",
        warnings: list[str] | None = None,
    ) -> None:
        self.items, self.where, self.state = items, f"groups.{group}.features", state
        self.unseen_level, self.warnings = unseen_level, warnings if warnings is not None else []

    def check_columns(self, formula: Formula) -> None:
        """Columns must exist and be complete."""
        for name in formula.columns:
            if name not in self.items.columns:
                near = get_close_matches(name, self.items.columns, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise DataError(f"{self.where}: the item table has no column {name!r}{hint}")
        problems = []
        for name in formula.columns:
            column = self.items[name]
            if column.dtype.is_nested() or column.dtype == pl.Binary:
                raise DataError(f"{self.where}: {name!r} has type {column.dtype}; a feature is a number or text")
            bad = missing(column)
            if bad.any():
                problems.append(f"{name!r} is missing or not finite for {self.ids(bad)}")
        if problems:
            raise DataError(
                f"{self.where}: {'; '.join(problems)}; fill in the features or take them out of the formula"
            )

    def ids(self, which: pl.Series) -> str:
        """How many items have it, and the first few."""
        ids = self.items.filter(which)["item_id"]
        return f"{counted(ids.len(), 'item')}: {first_few(ids.to_list())}"

    def is_category(self, factor: Factor) -> bool:
        """Text columns and C(...) are categories; what a column was at first sight it must stay."""
        if isinstance(factor, Category):
            return True
        if not isinstance(factor, Column):
            return False
        stored = self.state.get(factor_name(factor))
        text = self.items[factor.name].dtype in (pl.String, pl.Categorical, pl.Enum)
        if stored and (stored["kind"] == "category") != text:
            kinds = "a category" if stored["kind"] == "category" else "a number"
            raise DataError(
                f"{self.where}: column {factor.name!r} was {kinds} when the bank first saw it and is not now"
                f"{self.words_among_numbers(factor.name)}"
            )
        return text

    def words_among_numbers(self, name: str) -> str:
        """Which items have text in a column that holds numbers otherwise, for a message; else nothing."""
        column = self.items[name]
        if column.dtype != pl.String:
            return ""
        words = column.cast(pl.Float64, strict=False).is_null() & column.is_not_null()
        if not words.any() or 2 * int(words.sum()) > column.len() - column.null_count():
            return ""
        shown = first_few(column.filter(words).unique(maintain_order=True).to_list())
        return f": it holds text ({shown}) for {self.ids(words)}; mend the cells, or leave them empty"

    def learn(self, factor: Factor) -> None:
        """Add what the state does not know yet about a factor."""
        key = factor_name(factor)
        match factor:
            case Column() | Category() if self.is_category(factor):
                if key not in self.state:
                    if isinstance(factor, Column) and (said := self.words_among_numbers(factor.name)):
                        raise DataError(f"{self.where}: column {factor.name!r} is not a number throughout{said}")
                    self.state[key] = learn_levels(self.levels(factor))
            case Basis():
                x = self.number(factor.of, learn=True)
                if key not in self.state:
                    self.state[key] = (
                        learn_spline(x, factor.df, factor.degree)
                        if factor.name == "bs"
                        else learn_polynomial(x, factor.degree)
                    )
                    if np.unique(x).size <= factor.degree:
                        raise DataError(f"{self.where}: {key} needs more than {factor.degree} different values")
            case Category():
                raise AssertionError("a category is learned above")
            case _:
                self.number(factor, learn=True)
                if isinstance(factor, Column):
                    self.state.setdefault(key, {"kind": "number"})

    def levels(self, factor: Column | Category) -> pl.Series:
        """The levels of a category, as text."""
        return level_text(self.items[factor.name if isinstance(factor, Column) else factor.column.name])

    def columns_of(self, factor: Factor, full: bool) -> tuple[Array, list[str]]:
        """Columns of one factor and their names; a category without its reference level unless `full`."""
        key = factor_name(factor)
        if isinstance(factor, Column | Category) and self.is_category(factor):
            stored = self.state[key]
            levels = self.levels(factor)
            self.check_levels(levels, stored, key)
            start = 0 if full else 1
            return code_levels(levels, stored)[:, start:], [f"{key}[{level}]" for level in stored["levels"][start:]]
        if isinstance(factor, Basis):
            x = self.number(factor.of)
            stored = self.state[key]
            if factor.name == "bs":
                self.check_range(x, stored, key)
                columns = spline_basis(x, stored)
            else:
                columns = polynomial_basis(x, stored)
            return columns, [f"{key}[{k}]" for k in range(1, columns.shape[1] + 1)]
        assert not isinstance(factor, Category)
        return self.number(factor)[:, None], [key]

    def check_levels(self, levels: pl.Series, stored: State, key: str) -> None:
        """A level the state does not know is an error, or noted and coded as the mean."""
        new = ~levels.is_in(stored["levels"])
        if not new.any():
            return
        names = levels.filter(new).unique(maintain_order=True).to_list()
        text = f"{self.where}: {key} has {counted(len(names), 'level')} no earlier period had ({first_few(names)})"
        text += f", {self.ids(new)}"
        if self.unseen_level == "error":
            alike = {level.casefold(): level for level in stored["levels"]}
            near = get_close_matches(str(names[0]).casefold(), list(alike), n=1)
            hint = f"; nearest known level: {alike[near[0]]!r}" if near else ""
            raise DataError(f'{text}{hint}; correct the level, or set data.unseen_level = "mean"')
        self.warnings.append(f"{text}; coded as the mean over the known items")

    def check_range(self, x: Array, stored: State, key: str) -> None:
        """Values beyond a spline's ends are noted."""
        low, high = stored["ends"]
        beyond = pl.Series((x < low) | (x > high))
        if beyond.any():
            self.warnings.append(
                f"{self.where}: {key} is held constant beyond [{low:g}, {high:g}], the range it was set up for: "
                f"{self.ids(beyond)}"
            )

    def number(self, node: Arithmetic, learn: bool = False) -> Array:
        """Arithmetic of columns; a result that is not finite is an error that names the items."""
        with np.errstate(all="ignore"):
            values = np.broadcast_to(self.evaluate(node, learn), (self.items.height,))
        bad = pl.Series(~np.isfinite(values))
        if bad.any():
            raise DataError(f"{self.where}: {node} is not a finite number for {self.ids(bad)}")
        return values

    def evaluate(self, node: Arithmetic, learn: bool) -> Array:
        """Arithmetic, one node at a time."""
        match node:
            case Number():
                return np.asarray(node.value)
            case Column():
                return self.numeric_column(node.name)
            case Negation():
                return -self.evaluate(node.of, learn)
            case Operation():
                left, right = self.evaluate(node.left, learn), self.evaluate(node.right, learn)
                operators = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power}
                return np.asarray(operators[node.op](left, right))
            case Transform(name="log"):
                return np.asarray(np.log(self.evaluate(node.of, learn)))
            case Transform(name="sqrt"):
                return np.asarray(np.sqrt(self.evaluate(node.of, learn)))
            case Transform():
                return self.standardised(node, learn)

    def standardised(self, node: Transform, learn: bool) -> Array:
        """Centre or scale with the stored moments."""
        x, key = self.number(node.of, learn), str(node)
        if learn and key not in self.state:
            self.state[key] = learn_scale(x)
        stored = self.state[key]
        if node.name == "center":
            return np.asarray(x - stored["mean"])
        return np.asarray((x - stored["mean"]) / (stored["sd"] or 1.0))  # the same for every item: centred only

    def numeric_column(self, name: str) -> Array:
        """A column as float64."""
        column = self.items[name]
        if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
            raise DataError(
                f"{self.where}: column {name!r} is not a number but {column.dtype}"
                f"{self.words_among_numbers(name) or f'; use C({name}) for a category'}"
            )
        return column.cast(pl.Float64).to_numpy()
