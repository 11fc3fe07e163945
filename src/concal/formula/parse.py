"""From text to a formula; anything outside the language is refused with its place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import combinations
from typing import NamedTuple, NoReturn

from concal.errors import SpecError
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
    Term,
    Transform,
    columns_of,
)

TRANSFORMS = ("log", "sqrt", "center", "scale")
BASES = {"bs": ("df", "degree"), "poly": ("degree",)}
FUNCTIONS = (*TRANSFORMS, *BASES, "C", "I")
# a formula is data from a file: reading it must cost no more than its length says
MAX_LENGTH, MAX_DEPTH, MAX_TERMS, MAX_OPERATIONS = 10_000, 50, 1_000, 200


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d][\w.]*)"
    r"|`(?P<quoted>[^`]+)`|(?P<op>\*\*|[-+*/:(),=~])"
)


def parse_formula(text: str) -> Formula:
    """Parse a formula; anything outside the language is a `SpecError` that says where.

    Examples
    --------
    >>> from concal.formula import factor_name
    >>> [":".join(map(factor_name, term)) for term in parse_formula("~ length * C(cefr) + I(x ** 2)").terms]
    ['length', 'C(cefr)', 'I(x ** 2)', 'length:C(cefr)']
    """
    return _Parser(text).formula()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.next, self.depth, self.operations = text, 0, 0, 0
        if len(text) > MAX_LENGTH:
            raise SpecError(f"a formula of {len(text)} characters; at most {MAX_LENGTH} are allowed")
        self.tokens = list(self._tokens())

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            if found is None:
                hint = "; the backtick is never closed" if self.text[at] == "`" else ""
                self.fail(f"{self.text[at]!r} has no meaning in a formula{hint}", at)
            if found.lastgroup != "space":
                yield _Token(str(found.lastgroup), found[str(found.lastgroup)], at)
            at = found.end()
        yield _Token("end", "", at)

    def fail(self, what: str, at: int) -> NoReturn:
        raise SpecError(f"formula {self.text!r}, character {at + 1}: {what}")

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def take(self, *texts: str) -> _Token | None:
        token = self.token
        if token.kind == "op" and token.text in texts:
            self.next += 1
            return token
        return None

    def expect(self, text: str) -> None:
        if not self.take(text):
            found = repr(self.token.text) if self.token.kind != "end" else "the end"
            self.fail(f"expected {text!r}, found {found}", self.token.at)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"nested deeper than {MAX_DEPTH} parentheses", self.token.at)

    def formula(self) -> Formula:
        self.take("~")
        if self.token.kind == "end":
            self.fail("nothing after '~'; write '~ 1' for no features", self.token.at)
        terms = self.sum()
        if self.token.kind != "end":
            self.unexpected()
        kept = [term for term in terms if term]
        return Formula(self.text, tuple(sorted(kept, key=len)))

    def unexpected(self) -> NoReturn:
        token = self.token
        hints = {
            "~": "the score has no place in a feature formula; write only what follows '~'",
            "-": "terms cannot be taken away and the intercept is always there; for a difference write I(x - y)",
            "/": "division belongs inside I(...), e.g. I(x / y)",
            "**": "powers belong inside I(...), e.g. I(x ** 2)",
        }
        self.fail(hints.get(token.text, f"{token.text!r} is not expected here"), token.at)

    def sum(self) -> list[Term]:
        terms = self.product()
        while self.take("+"):
            terms = self.unique(terms + self.product())
        return terms

    def product(self) -> list[Term]:
        sides = [self.interaction()]
        while self.take("*"):
            sides.append(self.interaction())
        if len(sides) == 1:
            return sides[0]
        if len(sides) > 8:
            self.fail("more than 8 factors multiplied", self.token.at)
        terms: list[Term] = []
        for size in range(1, len(sides) + 1):
            for chosen in combinations(sides, size):
                terms += self.cross(list(chosen))
        return self.unique(terms)

    def interaction(self) -> list[Term]:
        sides = [self.atom()]
        while self.take(":"):
            sides.append(self.atom())
        return self.cross(sides)

    def cross(self, sides: list[list[Term]]) -> list[Term]:
        terms: list[Term] = [()]
        for side in sides:
            if len(terms) * len(side) > MAX_TERMS:
                self.fail(f"more than {MAX_TERMS} terms", self.token.at)
            terms = [tuple(dict.fromkeys(left + right)) for left in terms for right in side]
        return self.unique(terms)

    def unique(self, terms: list[Term]) -> list[Term]:
        if len(terms) > MAX_TERMS:
            self.fail(f"more than {MAX_TERMS} terms", self.token.at)
        return list({frozenset(term): term for term in reversed(terms)}.values())[::-1]

    def atom(self) -> list[Term]:
        token = self.token
        if self.take("("):
            self.deeper()
            terms = self.sum()
            self.expect(")")
            self.depth -= 1
            return terms
        if token.kind == "number":
            self.next += 1
            if float(token.text) == 1:
                return [()]
            self.fail("the intercept is always there; other numbers belong inside I(...)", token.at)
        if token.kind == "end":
            self.fail("the formula ends too early", token.at)
        if token.kind == "op":
            self.unexpected()
        factor = self.named(top=True)
        if isinstance(factor, Number) or not any(columns_of(factor)):
            self.fail("this term uses no column", token.at)
        return [(factor,)]

    def named(self, top: bool) -> Factor | Number:
        """A column or a call."""
        token = self.token
        self.next += 1
        if token.kind == "quoted" or not self.take("("):
            return Column(token.text)
        if token.text not in FUNCTIONS:
            near = get_close_matches(token.text, FUNCTIONS, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.fail(f"{token.text!r} is not a transform; there are {', '.join(FUNCTIONS)}{hint}", token.at)
        self.deeper()
        factor = self.call(token, top)
        self.expect(")")
        self.depth -= 1
        return factor

    def call(self, token: _Token, top: bool) -> Factor | Number:
        name = token.text
        if name in TRANSFORMS:
            return Transform(name, self.arithmetic())
        if not top and name != "I":
            self.fail(f"{name}(...) gives several columns and cannot be used inside arithmetic", token.at)
        if name == "I":
            return self.arithmetic()
        if name == "C":
            if self.token.kind not in ("name", "quoted"):
                self.fail("C(...) takes the name of a column", self.token.at)
            column = Column(self.token.text)
            self.next += 1
            return Category(column)
        return self.basis(token)

    def basis(self, token: _Token) -> Basis:
        name, of = token.text, self.arithmetic()
        options: dict[str, int] = {}
        while self.take(","):
            key = self.option_name(name, len(options))
            if key in options:
                self.fail(f"{key} is given twice", self.token.at)
            options[key] = self.whole_number()
        degree = options.get("degree", 3 if name == "bs" else 0)
        df = options.get("df", degree)
        if not 1 <= degree <= 20:
            self.fail(f"{name}(...) needs a degree between 1 and 20, e.g. {name}(x, degree=2)", token.at)
        if name == "bs" and not degree <= df <= 100:
            self.fail(f"bs(...) needs df between its degree ({degree}) and 100", token.at)
        return Basis(name, of, df if name == "bs" else degree, degree)

    def option_name(self, function: str, position: int) -> str:
        known, token = BASES[function], self.token
        if token.kind != "name":
            if position:
                self.fail(f"write the option's name: {', '.join(known)}", token.at)
            return known[0]
        if token.text not in known:
            near = get_close_matches(token.text, known, n=1, cutoff=0)
            self.fail(f"{function}(...) has no option {token.text!r}; did you mean {near[0]!r}?", token.at)
        self.next += 1
        self.expect("=")
        return token.text

    def whole_number(self) -> int:
        token = self.token
        if token.kind != "number" or not token.text.isascii() or not token.text.isdigit() or len(token.text) > 3:
            self.fail("expected a small whole number", token.at)
        self.next += 1
        return int(token.text)

    def arithmetic(self) -> Arithmetic:
        left = self.multiplied()
        while token := self.take("+", "-"):
            left = self.operation(token.text, left, self.multiplied())
        return left

    def operation(self, op: str, left: Arithmetic, right: Arithmetic) -> Operation:
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            self.fail(f"more than {MAX_OPERATIONS} operations", self.token.at)
        return Operation(op, left, right)

    def multiplied(self) -> Arithmetic:
        left = self.signed()
        while token := self.take("*", "/"):
            left = self.operation(token.text, left, self.signed())
        return left

    def signed(self) -> Arithmetic:
        if self.take("-"):
            self.deeper()
            of = self.signed()
            self.depth -= 1
            return Negation(of)
        base = self.operand()
        if self.take("**"):
            self.deeper()
            power = self.signed()
            self.depth -= 1
            return self.operation("**", base, power)
        return base

    def operand(self) -> Arithmetic:
        token = self.token
        if self.take("("):
            self.deeper()
            inner = self.arithmetic()
            self.expect(")")
            self.depth -= 1
            return inner
        if token.kind == "number":
            self.next += 1
            value = float(token.text)
            if not math.isfinite(value):
                self.fail("the number is too large", token.at)
            return Number(value)
        if token.kind in ("name", "quoted"):
            inner_factor = self.named(top=False)
            assert not isinstance(inner_factor, Category | Basis)  # named(top=False) refuses them
            return inner_factor
        found = repr(token.text) if token.kind != "end" else "the end"
        self.fail(f"expected a column or a number, found {found}", token.at)
