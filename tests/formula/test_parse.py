"""The formula language: what it says, and that nothing else gets in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concal.errors import SpecError
from concal.formula import factor_name, parse_formula


def terms(text: str) -> list[str]:
    return [":".join(map(factor_name, term)) for term in parse_formula(text).terms]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("~ 1", []),
        ("1 + x", ["x"]),
        ("~ x + x + 1", ["x"]),
        ("~ a*b", ["a", "b", "a:b"]),
        ("~ a*b + b:a", ["a", "b", "a:b"]),
        ("~ (a + b):c", ["a:c", "b:c"]),
        ("~ (a + b)*c", ["a", "b", "c", "a:c", "b:c"]),
        ("~ a:b + c", ["c", "a:b"]),
        ("~ a:a", ["a"]),
        ("~ `odd name` + C(`2nd`)", ["`odd name`", "C(`2nd`)"]),
        ("~ item.type + größe", ["item.type", "größe"]),
        ("~ log(x + 1) + sqrt(x)", ["log(x + 1)", "sqrt(x)"]),
        ("~ I(a - b*2 + 1.5e-3)", ["I((a - (b * 2)) + 0.0015)"]),
        ("~ I(-x ** -2)", ["I(-(x ** (-2)))"]),
        ("~ I(2 ** 3 ** x)", ["I(2 ** (3 ** x))"]),
        ("~ bs(x) + bs(x, 5) + bs(x, df=6, degree=2)", ["bs(x, df=3)", "bs(x, df=5)", "bs(x, df=6, degree=2)"]),
        ("~ poly(log(x), degree=2)", ["poly(log(x), 2)"]),
        ("~ log", ["log"]),
        ("~ scale(center(x))", ["scale(center(x))"]),
    ],
)
def test_meaning(text, expected):
    assert terms(text) == expected


def test_columns():
    formula = parse_formula("~ C(cefr)*log(x + `word count`) + bs(x, 4)")
    assert formula.columns == ("cefr", "x", "word count")


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("~ lgo(x)", 3, "did you mean 'log'"),
        ("~ x - 1", 5, "intercept is always there"),
        ("~ 0 + x", 3, "intercept is always there"),
        ("~ x + 2", 7, "intercept is always there"),
        ("y ~ x", 3, "the score has no place"),
        ("~ x ** 2", 5, r"I\(x \*\* 2\)"),
        ("~ x / y", 5, r"I\(x / y\)"),
        ("~", 2, "nothing after"),
        ("~ x +", 6, "ends too early"),
        ("~ (x", 5, r"expected '\)', found the end"),
        ("~ log(x", 8, r"expected '\)'"),
        ("~ x)", 4, "not expected here"),
        ("~ `x", 3, "never closed"),
        ("~ bs(x, dff=3)", 9, "did you mean 'df'"),
        ("~ bs(x, df=2)", 3, "needs df between"),
        ("~ poly(x)", 3, "needs a degree"),
        ("~ poly(x, 2.5)", 11, "small whole number"),
        ("~ poly(x, 2, degree=2)", None, "twice"),
        ("~ bs(x, 4, 2)", 12, "option's name"),
        ("~ log(C(x))", 7, "cannot be used inside arithmetic"),
        ("~ I(bs(x))", 5, "cannot be used inside arithmetic"),
        ("~ I(1 + 2)", 3, "uses no column"),
        ("~ C(1)", 5, "takes the name of a column"),
        ("~ I(x + 1e999)", 9, "too large"),
        ("~ x if y else z", 5, "not expected here"),
        ("~ x[0]", 4, "no meaning"),
        ("~ lambda: x", None, None),
        ("~ __import__('os')", None, None),
        ("~ I(x.real())", 5, "not a transform"),
        ("~ {x}", 3, "no meaning"),
        ("~ x; y", 4, "no meaning"),
        ("~ x == y", 5, "not expected here"),
    ],
)
def test_refused_with_the_place(text, at, message):
    if text == "~ lambda: x":  # an interaction of two columns called lambda and x: harmless
        assert terms(text) == ["lambda:x"]
        return
    with pytest.raises(SpecError, match=message) as caught:
        parse_formula(text)
    if at is not None:
        assert f"character {at}:" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "~ " + "(" * 5000 + "x" + ")" * 5000,
        "~ I(" + "-" * 5000 + "x)",
        "~ I(" + "+".join(["x"] * 4000) + ")",
        "~ I(" + "**".join(["x"] * 3000) + ")",
        "~ " + "*".join(f"x{k}" for k in range(40)),
        "~ " + "*".join(f"({' + '.join(f'x{k}_{i}' for i in range(20))})" for k in range(8)),
        "~ " + "log(" * 2000 + "x" + ")" * 2000,
        "~ " + "x + " * 5000 + "x",
    ],
    ids=["parentheses", "signs", "sum", "powers", "product", "product of sums", "nested calls", "long"],
)
def test_costly_formulas_are_refused_quickly(text):
    with pytest.raises(SpecError):
        parse_formula(text)


@pytest.mark.property
@given(st.text(alphabet="xyz~+-*/:()`, =.0123CIlogbsply", max_size=40))
def test_any_text_is_parsed_or_refused(text):
    try:
        formula = parse_formula(text)
    except SpecError:
        return
    again = "~ " + " + ".join(":".join(map(factor_name, term)) for term in formula.terms) if formula.terms else "~ 1"
    assert parse_formula(again).terms == formula.terms, "names of factors parse back to the same factors"
