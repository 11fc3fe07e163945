"""Examinees that earlier periods have, and ids that are one only to people."""

import time

import polars as pl
import pytest

from concal.data.check import check_period
from concal.data.findings import Findings
from concal.data.people import doubt_twins, returning
from concal.errors import DataError, SpecError
from concal.spec import Spec

GROUPS = {"g": {"model": "2pl", "dimension": "r"}}


def spec_of(**data) -> Spec:
    return Spec.parse({"bank": {"dimensions": ["r"]}, "groups": GROUPS, "data": {"few_responses": 0, **data}})


def rows(*persons: str, items=("a", "b")) -> pl.DataFrame:
    n = len(items)
    return pl.DataFrame(
        {
            "person_id": [p for p in persons for _ in items],
            "item_id": list(items) * len(persons),
            "score": [float((k + j) % 2) for k in range(len(persons)) for j in range(n)],
        }
    )


def table(*ids: str) -> pl.DataFrame:
    return pl.DataFrame({"item_id": ids})


def said(part: str, *persons: str, items=("a", "b"), **options) -> list[str]:
    checked = check_period(rows(*persons, items=items), table(*items), spec_of(), period="Q3", **options)
    assert checked.data.person_ids.to_list() == sorted(persons), "ids come back as given"
    return [text for text in checked.warnings if part in text]


def test_person_ids_that_differ_by_blanks_or_case_are_told():
    found = said("person ids", "p0", "p0 ", "P1", "p1", "p2")
    assert len(found) == 1
    assert (
        "2 pairs of person ids that differ only by surrounding blanks or case: 'p0' and 'p0 ', 'P1' and 'p1'"
        in (found[0])
    )
    assert "counted as different examinees" in found[0]
    assert said("person ids", "p0", "p1") == []


def test_item_ids_that_differ_by_blanks_or_case_are_told():
    found = said("item ids", "p0", "p1", items=("a", "A ", "b"))
    assert len(found) == 1
    assert "1 pair of item ids that differ only by surrounding blanks or case: 'A ' and 'a'" in found[0]


def test_returning_examinees_under_another_spelling_are_told():
    earlier = {"Q1": ["x1", "p0"], "Q2": pl.Series(["p1 "])}
    found = said("earlier period", "P0", "p1", "p2", earlier_persons=earlier)
    assert found == [
        "2 examinees whose id differs from one of an earlier period only by surrounding blanks or case: "
        "'P0' ('p0' in 'Q1'), 'p1' ('p1 ' in 'Q2'); they count as new examinees: if they are the same people, write "
        "their ids as they were written then"
    ]
    assert not said("only by surrounding", "p8", "p2", earlier_persons=earlier)


def test_the_earlier_periods_are_named_with_counts():
    earlier = {"Q1": ["p0", "p1"], "Q2": ["p2", "p1", "zz"]}
    checked = check_period(rows("p0", "p1", "p2", "p3"), table("a", "b"), spec_of(), earlier_persons=earlier)
    assert checked.n_returning == 3
    text = next(w for w in checked.warnings if "already appeared" in w)
    assert "3 examinees already appeared in an earlier period (2 in 'Q1', 2 in 'Q2'): 'p0', 'p1', 'p2'" in text
    with pytest.raises(DataError, match=r"3 examinees already appeared in an earlier period \(2 in 'Q1', 2 in 'Q2'\)"):
        check_period(rows("p0", "p1", "p2"), table("a", "b"), spec_of(returning="error"), earlier_persons=earlier)


def test_a_file_that_was_added_before_is_recognised():
    earlier = {"Q1": ["p0"], "Q2": ["p0", "p1", "p2"]}
    for rule in ("earlier", "error"):
        with pytest.raises(DataError, match=r"all of them in 'Q2': is this the file of 'Q2'\?"):
            check_period(rows("p0", "p1", "p2"), table("a", "b"), spec_of(returning=rule), earlier_persons=earlier)


@pytest.mark.parametrize("first", [0, 1])
def test_row_numbers_are_nobodys_ids(first):
    """Two files numbered by their rows: the examinees of the second are others, and would be left out."""
    ids, earlier = [str(k) for k in range(first, first + 12)], {"Q1": [str(k) for k in range(first, first + 9)]}
    warned = check_period(rows(*ids), table("a", "b"), spec_of(), earlier_persons=earlier).warnings
    (text,) = [w for w in warned if "already appeared" in w]
    assert text.endswith(
        f"; ids {first} to {first + 11} look like row numbers: if they are, other people have them in every file; give "
        "examinees ids that no other period has"
    )
    with pytest.raises(DataError, match="look like row numbers"):
        check_period(rows(*ids[:10]), table("a", "b"), spec_of(), earlier_persons={"Q1": ids})
    named = check_period(rows(*ids[:9], "x"), table("a", "b"), spec_of(), earlier_persons=earlier)
    assert not [w for w in named.warnings if "row numbers" in w]


def test_how_to_count_the_later_responses_is_said():
    with pytest.raises(SpecError, match=r"'later' is not a choice.*--replace") as told:
        spec_of(returning="later")
    assert "did you mean" not in str(told.value)


def test_many_examinees_cost_little():
    persons = pl.Series("person_id", [f"person-{k:07d}" for k in range(200_000)])
    found, start = Findings("x"), time.perf_counter()
    doubt_twins(persons, "person", "x", found)
    returning(persons, {"Q1": persons + "x", "Q2": persons.head(1000)}, spec_of(), found)
    assert time.perf_counter() - start < 2.0
    assert len(found.warnings) == 1
