"""The formula language of item features: parsed, never evaluated as code.

::

    formula     = [ "~" ] sum
    sum         = product { "+" product }
    product     = interaction { "*" interaction }          a * b  =  a + b + a:b
    interaction = atom { ":" atom }
    atom        = "1" | column | "(" sum ")" | "I(" arithmetic ")" | "C(" column ")"
                | "log(" arithmetic ")" | "sqrt(..)" | "center(..)" | "scale(..)"
                | "bs(" arithmetic [ "," [ "df=" ] n ] [ ", degree=" n ] ")"
                | "poly(" arithmetic "," [ "degree=" ] n ")"
    arithmetic  = columns, numbers, + - * / **, parentheses, and the four elementwise transforms
    column      = a name, or any text between backticks

The intercept is always there. Names of columns are checked later, against the item table (`concal.formula.design`).
"""

from concal.formula.nodes import Formula, factor_name, parts_of
from concal.formula.parse import parse_formula

__all__ = ["Formula", "factor_name", "parse_formula", "parts_of"]
