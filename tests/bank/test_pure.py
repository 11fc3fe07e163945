"""A version follows from its periods and its spec: what changed meanwhile, was taken out or came back."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.bank.building import evidence, link_periods
from concal.bank.building.coding import items_of_tables
from concal.bank.building.periods import Periods
from concal.bank.building.spec import merge_specs
from concal.bank.store import parquet
from concal.bank.store.transaction import Transaction
from concal.calibration.fingerprint import ENGINE, fingerprint
from concal.consensus.factors.make import make_factors
from concal.data.check import check_period
from concal.errors import BankError, DataError, LinkError, SpecError
from concal.spec import Spec

from .places import Place
from .programme import SPEC, fake_calibrator, items_table, responses_table


def changed(spec: Spec, section: str, **options: Any) -> Spec:
    content = spec.model_dump()
    return Spec.parse({**content, section: {**content[section], **options}})


def with_formula(spec: Spec, formula: str, group: str = "vocabulary") -> Spec:
    groups = {name: g.model_dump() for name, g in spec.groups.items()}
    return changed(spec, "groups", **{group: {**groups[group], "features": formula}})


def add(bank: Bank, period: str, first: int = 0, n: int = 12, **options: Any) -> Any:
    options = {"calibrator": fake_calibrator, "items": items_table(), **options}
    return bank.add(period, responses_table(period, first, n), options.pop("items"), **options)


def while_calibrating(work: Any) -> Any:
    """A calibrator during which something else happens."""

    def run(*arguments: Any, **options: Any) -> Any:
        work()
        return fake_calibrator(*arguments, **options)

    return run


def unanswered(bank: Bank) -> list[str]:
    return bank.items().filter(source="predicted")["item_id"].unique().sort().to_list()


@pytest.fixture
def bank(any_place: Place) -> Bank:
    bank = Bank.create(any_place / "bank", SPEC)
    add(bank, "Q1")
    add(bank, "Q2", 2)
    return bank


# options


def test_options_of_a_changed_spec_are_applied_and_taken_back(any_place: Place, bank: Bank) -> None:
    plain = bank.spec
    add(bank, "Q3", 4, spec=changed(plain, "consensus", half_life=1.0))
    other = Bank.create(any_place / "other", changed(SPEC, "consensus", half_life=1.0))
    for k, period in enumerate(("Q1", "Q2", "Q3")):
        add(other, period, 2 * k)
    assert bank.items().equals(other.items())
    add(bank, "Q4", 1, spec=plain)
    assert bank.spec == plain
    fresh = Bank.create(any_place / "fresh", SPEC)
    for period, first in (("Q1", 0), ("Q2", 2), ("Q3", 4), ("Q4", 1)):
        add(fresh, period, first)
    assert bank.items().equals(fresh.items())


def test_an_option_of_combine_stays_when_the_same_spec_is_given_again(bank: Bank) -> None:
    bank.combine(half_life=1.0)
    add(bank, "Q3", 4, spec=bank.spec)
    assert bank.spec.consensus.half_life == 1.0
    older = bank.at(2).spec
    add(bank, "Q4", 1, spec=older)
    assert bank.spec.consensus.half_life is None, "given on purpose, relative to what this object saw"


def said_of_the_spec(warnings: Sequence[str]) -> list[str]:
    return [text for text in warnings if text.startswith("the spec sets ")]


def test_a_spec_that_takes_back_what_commands_set_says_so(bank: Bank) -> None:
    """In the check and in the update: every option whose value in force changes, with both values."""
    given = bank.spec
    bank.rereference("Q2")
    bank.combine(half_life=2.0)
    bank.set_reporting({"reading": {"slope": 20, "intercept": 100}})
    wanted = [
        "the spec sets bank.reference from 'Q2' to 'Q1' (all periods are linked again) and consensus.half_life from "
        "2.0 to none and reporting.reading from (slope = 20.0, intercept = 100.0) to none; repeat the former values in "
        "bank.toml to keep them"
    ]
    checked = bank.check("Q3", responses_table("Q3", 4, 12), items_table(), spec=given)
    assert said_of_the_spec(checked.warnings) == wanted
    assert said_of_the_spec(add(bank, "Q3", 4, spec=bank.spec).warnings) == []
    assert said_of_the_spec(add(bank, "Q4", 4).warnings) == []
    done = add(bank, "Q5", 4, spec=given)
    assert said_of_the_spec(done.warnings) == wanted
    assert (bank.reference, bank.spec) == ("Q1", given)
    assert not [text for text in done.warnings if text.startswith("the reference is")]


def test_a_reference_in_force_that_is_named_is_no_change(bank: Bank) -> None:
    named = changed(changed(bank.spec, "bank", reference="Q1"), "linking", purify="score")
    assert said_of_the_spec(add(bank, "Q3", 4, spec=named).warnings) == []


@pytest.mark.parametrize("named", [False, True])
def test_a_reference_that_goes_and_comes_back_is_said(bank: Bank, named: bool) -> None:
    if named:
        bank.rereference("Q2")
    gone, left = ("Q2", "Q1") if named else ("Q1", "Q2")
    away = [text for text in bank.retract(gone).warnings if "the reference is" in text]
    assert len(away) == 1
    assert away[0].startswith(f"the reference is {left!r} now and was {gone!r}: {gone!r} is gone; every number")
    back = [text for text in add(bank, gone, 2 * named).warnings if "the reference is" in text]
    assert [text[:70] for text in back] == (
        ["the reference is 'Q2' now and was 'Q1': bank.reference names 'Q2'; eve"] if named else []
    )


@pytest.mark.parametrize(("option", "value"), [("model", "3pl"), ("dimension", "writing"), ("slopes", "equal")])
def test_a_group_keeps_its_model_though_a_period_lacks_it(any_place: Place, option: str, value: str) -> None:
    """A period without items of the group does not change what those of the others are."""
    third = {"model": "2pl", "dimension": "reading"}
    bank = Bank.create(any_place / "bank", changed(SPEC, "groups", third=third))
    table, answers = items_table(), responses_table("Q1", 0, 12)
    more = table.filter(group="vocabulary").with_columns(pl.col("item_id").str.replace("v", "t"), group=pl.lit("third"))
    own = answers.filter(pl.col("item_id").str.starts_with("v")).with_columns(pl.col("item_id").str.replace("v", "t"))
    bank.add("Q1", answers.vstack(own), table.vstack(more), calibrator=fake_calibrator)
    other = changed(bank.spec, "groups", third={**third, option: value})
    for attempt in (bank.check, partial(bank.add, calibrator=fake_calibrator)):
        with pytest.raises(SpecError, match=r"group 'third': .*, but period 'Q1' has 2pl on 'reading'; a group keeps"):
            attempt("Q2", responses_table("Q2", 2, 12), items_table(), spec=other)

    # another writer may bring the group while this one calibrates
    fresh = Bank.create(any_place / "fresh", changed(SPEC, "groups", third=third))
    add(fresh, "Q0")
    another = Bank(fresh.path)
    coming = partial(another.add, "Q1", answers.vstack(own), table.vstack(more), calibrator=fake_calibrator)
    with pytest.raises(SpecError, match="group 'third'"):
        add(
            fresh,
            "Q2",
            2,
            spec=changed(fresh.spec, "groups", third={**third, option: value}),
            calibrator=while_calibrating(coming),
        )
    assert fresh.refresh().period_names == ("Q0", "Q1")
    fewer = Spec.parse({**bank.spec.model_dump(), "groups": SPEC.model_dump()["groups"]})
    add(bank, "Q2", 2, spec=fewer)
    assert bank.items(["t01"])["n_periods"].to_list()[0] == 1


@pytest.mark.parametrize(
    ("before", "own_before", "after", "own_after", "said"),
    [
        (None, 4, 4, 4, r"the items' own there, the group's here\).*take categories = 4 of the group out of bank.toml"),
        (
            4,
            None,
            5,
            4,
            r"the group's there, the items' own here\).*set categories = 4 for the group in bank.toml again",
        ),
    ],
)
def test_the_same_scoring_declared_elsewhere_is_said_to_be_that(
    any_place: Place, before: int | None, own_before: int | None, after: int, own_after: int, said: str
) -> None:
    def spec(categories: int | None) -> Spec:
        return changed(SPEC, "groups", essay={**SPEC.groups["essay"].model_dump(), "categories": categories})

    def items(own: int | None) -> pl.DataFrame:
        number = pl.when(pl.col("group") == "essay").then(pl.lit(own, dtype=pl.Int64))
        return items_table().with_columns(categories=number)

    bank = Bank.create(any_place / "bank", spec(before))
    add(bank, "Q1", items=items(own_before))
    with pytest.raises(DataError, match=r"10 items of group 'essay' scored as in period 'Q1'.*" + said):
        bank.check("Q2", responses_table("Q2", 2, 12), items(own_after), spec=spec(after))
    one = items(own_after).with_columns(
        categories=pl.when(pl.col("item_id") == "e05").then(pl.lit(6)).otherwise(pl.col("categories"))
    )
    with pytest.raises(DataError, match=r"1 item in another group, or with another number.*: 'e05' "):
        bank.check("Q2", responses_table("Q2", 2, 12), one, spec=spec(after))


def test_what_others_change_during_a_calibration_stays(bank: Bank) -> None:
    def others() -> None:
        second = Bank(bank.path)
        second.combine(half_life=2.0)
        second.rereference("Q2")

    spec = changed(bank.spec, "linking", min_anchors=4)
    add(bank, "Q3", 4, spec=spec, calibrator=while_calibrating(others))
    assert bank.spec.consensus.half_life == 2.0
    assert bank.spec.linking.min_anchors == 4
    assert bank.reference == "Q2"
    assert bank.link("Q3").reference == "Q2"


def test_a_pinned_object_gives_the_changes_of_what_it_saw(bank: Bank) -> None:
    Bank(bank.path).combine(half_life=2.0)
    add(bank, "Q3", 4, spec=bank.spec)  # this object has not seen the option
    assert bank.spec.consensus.half_life == 2.0


def test_merging_specs_field_by_field() -> None:
    seen = SPEC
    given = with_formula(changed(seen, "consensus", draws=50), "~ 1")
    head = changed(with_formula(seen, "~ length", "essay"), "consensus", half_life=3.0)
    merged = merge_specs(seen, given, head)
    assert (merged.consensus.draws, merged.consensus.half_life) == (50, 3.0)
    assert merged.groups["vocabulary"].features == "~ 1"
    assert merged.groups["essay"].features == "~ length"
    assert merge_specs(head, changed(head, "consensus", half_life=None), head).consensus.half_life is None
    fewer = Spec.parse({**seen.model_dump(), "groups": {"vocabulary": seen.groups["vocabulary"].model_dump()}})
    assert set(merge_specs(seen, fewer, head).groups) == {"vocabulary"}
    assert merge_specs(seen, None, head) == head


@pytest.mark.parametrize("option", ["finite_draw_correction", "tilt", "shared_metric", "halflife"])
def test_unknown_options_are_refused(bank: Bank, option: str) -> None:
    with pytest.raises(BankError, match="unknown options"):
        bank.combine(**{option: True})
    assert bank.refresh().version == 2


def test_a_tiny_half_life_is_quiet(bank: Bank) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bank.combine(half_life=0.01)
    assert bank.items()["sd"].is_finite().all()


def test_other_dimensions_are_refused_before_calibrating(bank: Bank) -> None:
    content = bank.spec.model_dump()
    content["bank"]["dimensions"] = ("reading", "writing", "speaking")

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError

    with pytest.raises(SpecError, match=r"bank.dimensions changes"):
        add(bank, "Q3", 4, spec=Spec.parse(content), calibrator=never)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "3pl"}, r"'vocabulary': 3pl on 'reading', but period 'Q1' has 2pl on 'reading'"),
        ({"model": "1pl"}, r"1pl on 'reading', but period 'Q1' has 2pl on"),
    ],
)
def test_another_model_of_a_group_is_refused_before_calibrating(bank: Bank, change: Any, said: str) -> None:
    groups = {name: g.model_dump() for name, g in bank.spec.groups.items()}
    spec = changed(bank.spec, "groups", vocabulary={**groups["vocabulary"], "slopes": None, **change})

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError

    with pytest.raises(SpecError, match=said):
        add(bank, "Q3", 4, spec=spec, calibrator=never)
    assert bank.refresh().version == 2


# coding and unanswered items


def test_concurrent_adds_lose_no_item_and_keep_their_coding(any_place: Place) -> None:
    bank = Bank.create(any_place / "bank", with_formula(SPEC, "~ center(length)"))
    long = items_table(20).with_columns(length=pl.col("length") + 10.0)

    def other() -> None:
        add(Bank(bank.path), "Q2", 2, items=long)

    add(bank, "Q1", items=items_table(18), calibrator=while_calibrating(other))
    assert bank.period_names == ("Q2", "Q1")
    assert {"v16", "v17", "v18", "v19", "e19"} <= set(unanswered(bank))
    one, two = (bank.calibration(p).groups["vocabulary"] for p in bank.period_names)
    assert one.features == two.features
    assert one.coding != two.coding, "centred differently: not the same features"
    periods = Periods.of(bank._store, bank.snapshot)
    assert bank.design_states()["vocabulary"]["features"] == periods["Q2"].coding()["vocabulary"]["features"]
    for item, length in (("v17", 2.0), ("v19", 14.0)):  # what is stored is what the newest period's coding predicts
        asked = pl.DataFrame({"item_id": [item], "group": ["vocabulary"], "length": [length]})
        np.testing.assert_allclose(bank.predict(asked)["mean"], bank.items([item])["mean"], atol=1e-12)


def test_add_then_retract_loses_nothing_that_another_period_lists(any_place: Place) -> None:
    bank = Bank.create(any_place / "bank", SPEC)
    add(bank, "Q1", 0, 10)
    before = bank.items()
    assert "v14" in unanswered(bank)
    add(bank, "Q2", 6, 10)
    assert "v14" not in unanswered(bank)
    bank.retract("Q2")
    assert bank.items().equals(before)
    left = items_of_tables(Periods.of(bank._store, bank.snapshot))
    assert sum(len(ids) for ids, _ in left.values()) == 12


def test_retracting_the_period_that_brought_a_formula(bank: Bank) -> None:
    spec = with_formula(bank.spec, "~ length + C(kind)")
    table = items_table().with_columns(kind=pl.Series(["x", "y", "z", "x"] * 8))
    add(bank, "Q3", 4, 8, spec=spec, items=table)
    asked = pl.DataFrame({"item_id": ["new"], "group": ["vocabulary"], "length": [2.0], "kind": ["y"]})
    assert bank.predict(asked).height == 2
    bank.retract("Q3")
    assert bank.spec.groups["vocabulary"].features == "~ length + C(kind)"
    assert bank.predict(asked.drop("kind")).height == 2


def test_unanswered_items_survive_formulas_that_go_and_come_back(any_place: Place) -> None:
    bank = Bank.create(any_place / "bank", SPEC)
    kind = pl.Series("kind", ["x", "y", "z", "x", "y"] * 8)
    add(bank, "Q1", items=items_table(20).with_columns(kind))
    assert "v19" in unanswered(bank)
    add(bank, "Q2", 2, 8, items=items_table(20).with_columns(kind), spec=with_formula(bank.spec, "~ C(kind)"))
    assert "v19" in unanswered(bank)
    add(bank, "Q3", 2, spec=with_formula(bank.spec, "~ length"))  # a table without the item
    assert "v19" in unanswered(bank)
    asked = pl.DataFrame({"item_id": ["v19"], "group": ["vocabulary"], "length": [4.0]})
    np.testing.assert_allclose(bank.predict(asked)["mean"], bank.items(["v19"])["mean"], atol=1e-12)


def test_items_nobody_answered_are_predicted_whatever_formula_was_in_force(any_place: Place) -> None:
    """An item table is kept whole: a later formula reads columns that no formula read when the period came."""
    kind = pl.Series("kind", ["x", "y", "z", "x"] * 20)
    long, short = (items_table(n).with_columns(kind.head(2 * n)) for n in (20, 16))
    formula = with_formula(SPEC, "~ length + C(kind)")
    bank = Bank.create(any_place / "bank", SPEC)
    add(bank, "Q1", items=long)
    add(bank, "Q2", 2, items=short, spec=formula)
    fresh = Bank.create(any_place / "fresh", bank.spec)
    periods = Periods.of(bank._store, bank.snapshot)
    for period, table in (("Q1", long), ("Q2", short)):
        states = {name: state for name, state in periods[period].coding().items() if state}
        fresh.add_calibration(bank.calibration(period), design_states=states, items=table)
    assert {"v16", "v17", "v18", "v19"} <= set(unanswered(bank))
    assert bank.items().equals(fresh.items())


def test_of_an_item_table_everything_a_formula_can_read_is_kept(bank: Bank) -> None:
    table = items_table()
    n = table.height
    others: dict[str, Any] = {
        "text": pl.Series(["ä"] * n),
        "kind": pl.Series(["x", "y"] * (n // 2), dtype=pl.Categorical),
        "flag": pl.Series([True] * n),
        "whole": pl.Series(range(n), dtype=pl.Int128),
        "exact": pl.Series([Decimal("0.1")] * n),
        "written": pl.Series([date(2026, 1, 31)] * n),
        "n_responses": pl.Series(range(n)),
        "empty": pl.Series([None] * n, dtype=pl.Null),
        "options": pl.Series([["a", "b"]] * n),
        "picture": pl.Series([b"\x00"] * n),
    }
    add(bank, "Q3", 4, items=table.with_columns(**others))
    bank.exclude("v05", "Q3")
    kept = Periods.of(bank._store, bank.snapshot)["Q3"].listed(*table.columns, *others)
    lost = {"empty", "options", "picture"}
    assert set(kept.columns) == {*table.columns, *others} - lost
    assert kept.sort("whole")["n_responses"].to_list() == list(range(n))
    assert kept["written"].unique().to_list() == [date(2026, 1, 31)]


def test_a_formula_changed_by_another_add_during_calibration(bank: Bank) -> None:
    def other() -> None:
        add(Bank(bank.path), "Q3", 4, spec=with_formula(SPEC, "~ 1"))

    add(bank, "Q4", 1, calibrator=while_calibrating(other))
    assert bank.period_names == ("Q1", "Q2", "Q3", "Q4")
    assert bank.spec.groups["vocabulary"].features == "~ 1"
    assert bank.calibration("Q4").groups["vocabulary"].features == ("1", "length")


@pytest.mark.parametrize("method", ["joint", "paper"])
def test_another_method_has_the_unanswered_items_too(any_place: Place, method: str) -> None:
    bank = Bank.create(any_place / "bank", changed(SPEC, "linking", purify="score"))
    add(bank, "Q1", items=items_table(20))
    add(bank, "Q2", 2, items=items_table(20))
    stored, other = bank.consensus(), bank.consensus(method)
    assert other.method == method
    for name, group in stored.groups.items():
        assert set(other.groups[name].item_ids) == set(group.item_ids)


def test_a_method_that_links_by_another_rule_is_refused(bank: Bank) -> None:
    """The paper's method takes the paper's rule for anchors: at other links its numbers would be nobody's."""
    with pytest.raises(BankError, match=r"'paper'.*purify.*combine\(method='paper'\)"):
        bank.consensus("paper")
    bank.combine(method="paper")
    assert bank.consensus("paper").method == "paper"
    with pytest.raises(BankError, match="'joint'"):
        bank.consensus("joint")


# links and sums


def chain(path: Path, half_life: float | None = None) -> Bank:
    """Q3 shares items with Q2 only."""
    bank = Bank.create(path, changed(SPEC, "consensus", half_life=half_life))
    for period, first in (("Q1", 0), ("Q2", 6), ("Q3", 13)):
        responses = responses_table(period, first, 10, items=40)
        bank.add(period, responses, items_table(40), calibrator=fake_calibrator)
    return bank


def test_links_through_the_consensus_follow_the_half_life(any_place: Place) -> None:
    later, at_once = chain(any_place / "later"), chain(any_place / "at_once", 1.0)
    assert any(len(path) > 2 for path in later.link("Q3").path.values())
    update = later.combine(half_life=1.0)
    assert update.relinked == ("Q3",)
    assert later.items().equals(at_once.items())
    assert later.links().equals(at_once.links())


@pytest.mark.parametrize("lacking", ["its group", "answers"])
def test_the_reference_measures_every_dimension(any_place: Place, lacking: str) -> None:
    """Nothing could be linked to it in a dimension it lacks; a later period may lack one."""

    def without_writing(period: str, first: int) -> Any:
        data = check_period(responses_table(period, first), items_table(), SPEC, period=period).data
        made = fake_calibrator(data, SPEC, period=period, seed=1)
        essay = replace(made.groups["essay"], n_responses=made.groups["essay"].n_responses * 0)
        groups = {"vocabulary": made.groups["vocabulary"]} | ({"essay": essay} if lacking == "answers" else {})
        return replace(made, groups=groups)

    bank = Bank.create(any_place / "bank", SPEC)
    with pytest.raises(LinkError, match=r"period 'Q1' cannot be the reference.*'writing'"):
        bank.add_calibration(without_writing("Q1", 0))
    assert bank.refresh().period_names == ()
    add(bank, "Q1")
    if lacking == "its group":
        bank.add_calibration(without_writing("Q2", 2))
        for change in (bank.rereference, bank.retract):
            with pytest.raises(LinkError, match="period 'Q2' cannot be the reference"):
                change("Q2" if change == bank.rereference else "Q1")


def test_direct_links_are_kept_and_draws_not_read(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    add(bank, "Q3", 4)
    read = reads(monkeypatch)
    assert bank.combine(half_life=1.0).relinked == ()
    assert bank.retract("Q2").relinked == ()
    assert not [path for path in read if "draws" in path]
    link = bank.snapshot.periods["Q3"].link
    assert link == bank.at(3).snapshot.periods["Q3"].link


def test_periods_that_cannot_be_linked_yet_wait_for_others(any_place: Place) -> None:
    bank = chain(any_place / "bank")
    update = bank.rereference("Q3")  # Q1 shares nothing with it: Q2 has to be linked first
    assert update.relinked == ("Q3", "Q2", "Q1")
    assert all(len(path) > 2 for path in bank.link("Q1").path.values())


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of all files read from now on."""
    found: list[str] = []
    whole, part = parquet.read_bytes, parquet.Part.__init__

    def read_bytes(store: Any, entry: Any) -> bytes:
        found.append(entry.path)
        return whole(store, entry)

    def opened(self: Any, store: Any, entry: Any) -> None:
        found.append(entry.path)
        part(self, store, entry)

    for module in ("parquet", "folder"):
        monkeypatch.setattr(f"concal.bank.store.{module}.read_bytes", read_bytes)
    monkeypatch.setattr(parquet.Part, "__init__", opened)
    return found


def test_adding_to_totals_that_fit_reads_no_old_factor(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reads(monkeypatch)
    add(bank, "Q3", 4)
    factors = [path for path in read if "factors" in path]
    assert factors, "the new period's own"
    assert not [path for path in factors if path.startswith(("data/Q1", "data/Q2"))]
    assert not [path for path in read if path.startswith("data/Q2") and "draws" in path]
    read.clear()
    bank.combine(method="analytic")
    assert not [path for path in read if "factors" in path]
    read.clear()
    bank.combine(half_life=2.0)
    assert {path.split("/")[1].split("-")[0] for path in read if "factors" in path} == {"Q1", "Q2", "Q3"}


def test_links_and_sums_of_an_older_algorithm_are_made_again(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    add(bank, "Q3", 4)
    assert bank.combine().relinked == ()
    monkeypatch.setattr(link_periods, "LINKING", link_periods.LINKING + 1)
    assert bank.combine().relinked == ("Q2", "Q3")
    read = reads(monkeypatch)
    monkeypatch.setattr(evidence, "TOTALS", evidence.TOTALS + 1)
    bank.combine(method="analytic")
    assert {path.split("/")[1].split("-")[0] for path in read if "factors" in path} == {"Q1", "Q2", "Q3"}


def test_warnings_of_earlier_periods_stay(any_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def doubtful(calibration: Any) -> Any:
        made = make_factors(calibration)
        return replace(made, warnings=(*made.warnings, f"doubt about {calibration.period}"))

    monkeypatch.setattr("concal.bank.building.new_period.make_factors", doubtful)
    bank = Bank.create(any_place / "bank", SPEC)
    add(bank, "Q1")
    add(bank, "Q2", 2)
    for period in ("Q1", "Q2"):
        assert any(f"doubt about {period}" in text for text in bank.consensus().warnings)


# what is stored


def test_the_cost_of_an_update_is_not_that_of_the_calibration(bank: Bank) -> None:
    table = bank.periods()
    assert table["seconds"].to_list() == [0.5, 0.5], "of the calibration"
    assert all(0 < seconds < 60 and seconds != 0.5 for seconds in table["update_seconds"])


def test_a_calibration_of_an_older_engine_is_not_taken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    data = check_period(responses_table("Q1"), items_table(), SPEC, period="Q1").data
    now = fingerprint(data, SPEC, 1, "engine")
    assert fingerprint(data, SPEC, 1, "engine") == now
    monkeypatch.setattr("concal.calibration.fingerprint.ENGINE", ENGINE + 1)
    assert fingerprint(data, SPEC, 1, "engine") != now
    monkeypatch.undo()
    monkeypatch.setattr("concal.__version__", "0.0.0")
    assert fingerprint(data, SPEC, 1, "engine") != now


def test_a_calibration_under_another_response_model_is_not_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same data and spec: the model as it is, and for one of another package the source as it is."""
    data = check_period(responses_table("Q1"), items_table(), SPEC, period="Q1").data
    name, group = next(iter(data.groups.items()))
    found = [fingerprint(data, SPEC, 1)]
    for slopes in ("equal", "free"):
        other = replace(group, model=replace(group.model, slopes=slopes))
        found.append(fingerprint(replace(data, groups=data.groups | {name: other}), SPEC, 1))
    assert found[0] == found[2] != found[1]
    source = tmp_path / "model_of_theirs.py"
    source.write_text("SLOPE = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    theirs = type("Theirs", (type(group.model),), {"__module__": "model_of_theirs"})
    added = replace(data, groups=data.groups | {name: replace(group, model=theirs(**vars(group.model)))})
    before = fingerprint(added, SPEC, 1)
    assert fingerprint(added, SPEC, 1) == before
    source.write_text("SLOPE = 2.0\n")
    assert fingerprint(added, SPEC, 1) != before


def test_a_resumed_period_comes_with_the_item_table_given_now(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("concal.bank.building.next_version.consensus_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            add(bank, "Q3", 4)
    add(bank, "Q3", 4, items=items_table(20))
    assert "v19" in unanswered(bank)


def test_draws_that_are_not_finite_are_refused(bank: Bank) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        made = fake_calibrator(*arguments, **options)
        made.groups["essay"].xi[0, 3, 2, 1] = np.nan
        return made

    with pytest.raises(DataError, match="draws of 1 item are not finite: 'e06'"):
        add(bank, "Q3", 4, calibrator=broken)
    assert bank.refresh().version == 2


def test_prune_beside_a_commit_of_a_resumed_calibration(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files adopted from a shelf are old; that must not make them removable."""
    publish, helpers = Transaction.publish, []

    def published(self: Transaction) -> None:
        for path in (self.folder / "files").rglob("*"):
            os.utime(path, (0, 0))
        publish(self)
        helpers.append(threading.Thread(target=lambda: Bank(bank.path).prune(keep=1, grace_days=0)))
        helpers[-1].start()
        helpers[-1].join(0.3)

    monkeypatch.setattr(Transaction, "publish", published)
    add(bank, "Q3", 4)
    for helper in helpers:
        helper.join()
    assert bank.verify().ok
    assert bank.items().height > 0
