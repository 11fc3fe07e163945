"""The linkage plan: counts, components, the way to the reference."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concal.data.linkage import linkage
from concal.errors import DataError


def one(**periods: str) -> dict[str, dict[str, str]]:
    return {p: {"reading": ids} for p, ids in periods.items()}


def test_counts_per_pair_and_dimension():
    plan = linkage(
        {"Q1": {"reading": "abcd", "writing": "xy"}, "Q2": {"reading": "cdef", "writing": "y"}}, "Q1", min_anchors=2
    )
    assert plan.pairs().rows() == [("reading", "Q1", "Q2", 2), ("writing", "Q1", "Q2", 1)]
    assert plan.unlinked == (("writing", "Q2"),)
    assert "1 with 'Q1'; 2 are needed" in plan.problems()[0]
    assert plan.problems("Q1") == []
    table = plan.table()
    assert table.filter(~table["linked"]).select("dimension", "period").rows() == [("writing", "Q2")]


def test_a_chain_where_the_reference_is_out_of_reach():
    plan = linkage(one(Q1="abc", Q2="bcd", Q3="cde", Q4="zzz"), "Q1", min_anchors=2)
    assert plan.chains["reading", "Q2"] == ("Q2", "Q1")
    assert plan.chains["reading", "Q3"] == ("Q3", "Q2", "Q1")
    assert plan.chains["reading", "Q4"] == ()
    assert plan.weakest["reading", "Q3"] == 2


def test_of_equally_short_ways_the_strongest():
    plan = linkage(one(Q1="abcdefgh", Q2="abXY", Q3="cdefghUVW", Q4="XYUVW"), "Q1", min_anchors=2)
    assert plan.chains["reading", "Q4"] == ("Q4", "Q3", "Q1")
    assert plan.weakest["reading", "Q4"] == 3


def test_through_the_consensus_where_no_single_period_suffices():
    plan = linkage(one(Q1="abcde", Q2="cdefg", Q3="abfgz"), "Q1", min_anchors=3)
    assert plan.chains["reading", "Q3"] == ("Q3", "consensus", "Q1")
    assert plan.weakest["reading", "Q3"] == 4


def test_a_dimension_the_reference_lacks_links_nothing():
    plan = linkage({"Q1": {"reading": "ab"}, "Q2": {"reading": "ab", "writing": "xy"}}, "Q1", min_anchors=1)
    assert plan.unlinked == (("writing", "Q2"),)


def test_plan_again_with_one_more_period():
    plan = linkage(one(Q1="abc", Q2="bcd"), "Q1", min_anchors=2)
    again = linkage({**plan.items, "Q3": {"reading": "cd"}}, "Q1", min_anchors=2)
    assert again.chains["reading", "Q3"] == ("Q3", "Q2", "Q1")


def test_unknown_reference():
    with pytest.raises(DataError, match="'Q9' is not among the periods 'Q1'"):
        linkage(one(Q1="a"), "Q9")


def hang_together(plan, periods, enough):
    """Periods that reach the first one over pairs with enough items in common."""
    member = {periods[0]}
    while more := {p for p in periods if p not in member and any(plan.shared["r", p, m] >= enough for m in member)}:
        member |= more
    return member


@pytest.mark.property
@given(
    sets=st.lists(st.frozensets(st.integers(0, 12).map(str), min_size=1), min_size=1, max_size=6),
    enough=st.integers(1, 4),
)
def test_chains_are_ways_over_strong_pairs(sets, enough):
    items = {f"Q{k}": {"r": ids} for k, ids in enumerate(sets)}
    plan = linkage(items, "Q0", enough)
    component = hang_together(plan, list(items), enough)
    assert "Q0" in component
    for period in items:
        chain = plan.chains["r", period]
        if period in component:
            assert "consensus" not in chain or len(chain) == 3
            assert chain, "what hangs together with the reference reaches it"
        if not chain:
            linked = [p for p in items if plan.chains["r", p]]
            union = frozenset().union(*(items[p]["r"] for p in linked))
            assert len(items[period]["r"] & union) < enough
            continue
        assert chain[0] == period
        assert chain[-1] == "Q0"
        for a, b in pairwise(chain):
            if "consensus" not in (a, b):
                assert plan.shared["r", a, b] >= enough
