"""Can a version be released, and what must be looked at first."""

import pytest

from concal.evaluate.notice import Notice
from concal.evaluate.readiness import readiness, topics

LINK = Notice("doubt", "links", "2026Q2: 3 anchors of 'reading' drift")
ALIKE = Notice("doubt", "links", "2026Q3: 14 anchors of 'writing' drift")
OTHER = Notice("doubt", "links", "2026Q3: methods disagree")
BAD = Notice("problem", "calibration", "2026Q1: the run missed a target")
LATE = Notice("doubt", "agreement", "no pooled fit")


def test_topics_by_problem_then_consequence():
    found = topics([LATE, LINK, BAD])
    assert [t.section for t in found] == ["calibration", "links", "agreement"]
    assert found[0].level == "problem"


def test_notices_that_say_the_same_are_one_entry():
    (links,) = topics([LINK, OTHER, ALIKE])
    assert [(e.text, e.more) for e in links.entries] == [(LINK.text, (ALIKE.text,)), (OTHER.text, ())]


@pytest.mark.parametrize(
    ("notices", "answer", "look"),
    [([], "ready", 0), ([LATE], "ready", 0), ([LINK, LATE], "look", 1), ([LINK, BAD], "wait", 2)],
)
def test_answer(notices, answer, look):
    found = readiness(topics(notices))
    assert (found.answer, len(found.look)) == (answer, look)


def test_a_release_says_so():
    assert readiness(topics([BAD]), ["spring"]).release == "Released as spring, with open problems."
    assert "nothing speaks against it" in readiness(topics([]), ["spring"]).release


def test_misfit_has_a_title_of_its_own():
    (fit,) = topics([Notice("doubt", "fit", "5 items do not follow their curve")])
    assert fit.title == "Items that do not fit"
    assert fit.meaning
