"""History never shows: whatever way a version was reached, it is a function of its periods, its spec and its acts."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from polars.testing import assert_frame_equal

from concal.bank.bank import Bank
from concal.bank.building.coding import items_of_tables
from concal.bank.building.new_period import NewPeriod, keep_calibration, new_period
from concal.bank.building.next_version import Change, make_next_version
from concal.bank.building.periods import Periods
from concal.bank.building.progress import Clock
from concal.bank.exchange.draws import calibration_from_draws
from concal.bank.store.manifest import PeriodEntry, Snapshot
from concal.bank.store.parquet import read_bytes
from concal.bank.store.shelf import Shelf
from concal.bank.store.transaction import Transaction
from concal.bank.version import Version
from concal.data.check import check_period
from concal.errors import ConcalError
from concal.spec import Spec

from .programme import SPEC, by_person_group, fake_calibrator, responses_table, same

pytestmark = pytest.mark.property

NAMES = [f"P{k}" for k in range(6)]
ITEMS = 14
FORMULAS = {"A": "~ scale(length)", "B": "~ scale(length) + C(kind)"}


def without_half_life(change: dict[str, Any]) -> dict[str, Any]:
    """Given again as it was seen, it would not undo what another writer made of it meanwhile."""
    return {key: value for key, value in change.items() if key != "half_life"}


LINKINGS = [{"purify": "paper"}, {"purify": None}, {"method": "mean_mean"}, {"method": "haebara"}, {"min_anchors": 4}]
THIRD = ("spelling", "words")
"""What a third group may be called, while there is one."""
WRITES = ["add", "combine", "retract", "rereference", "exclude", "split"]
name = st.sampled_from(NAMES)
first = st.sampled_from(range(0, ITEMS, 2))
seed = st.integers(0, 2)
person_group = st.sampled_from([None, "a", "b"])
half_life = st.sampled_from([None, 1.0, 2.5])
changes = st.fixed_dictionaries(
    {},
    optional={
        "formula": st.sampled_from(["A", "B"]),
        "half_life": half_life,
        "linking": st.sampled_from(LINKINGS),
        "third": st.sampled_from([*THIRD, None]),
    },
)


def item_table(first: int, extra: int, third: str | None = None) -> pl.DataFrame:
    """The items of a window and a few that nobody answers there; features are learned from the items listed."""
    which = [(first + k) % ITEMS for k in range(8 + extra)] + [ITEMS + first]
    groups = {"vocabulary": "v", "essay": "e"} | ({} if third is None else {third: "t"})
    return pl.DataFrame(
        {
            "item_id": [f"{letter}{k:02d}" for letter in groups.values() for k in which],
            "group": [group for group in groups for _ in which],
            "length": [float(k * k % 7) for k in which] * len(groups),
            "kind": ["xyz"[k % 3] for k in which] * len(groups),
        }
    )


def responses(period: str, first: int, seed: int, third: str | None = None) -> pl.DataFrame:
    """With some seeds from two groups of examinees, the second of which does not answer the first item."""
    table = responses_table(period, first, 8, persons=8, seed=seed, items=ITEMS)
    if seed == 1:
        second = pl.col("person_id").str.slice(-1).cast(pl.Int32) % 2 == 1
        table = table.with_columns(person_group=pl.when(second).then(pl.lit("b")).otherwise(pl.lit("a")))
        table = table.filter(~(second & pl.col("item_id").str.ends_with(f"{first:02d}")))
    if third is None:
        return table
    more = table.filter(pl.col("item_id").str.starts_with("v"))
    return pl.concat([table, more.with_columns(pl.col("item_id").str.replace("v", "t"))])


def third_group(spec: Spec) -> str | None:
    return next((name for name in THIRD if name in spec.groups), None)


def rebuilt(bank: Bank, path: Path, tables: Mapping[str, pl.DataFrame]) -> Bank:
    """A bank made afresh, in one change that brings all periods and acts at once.

    From the same calibrations, coding and spec, and from the item tables as they were given: what the bank kept of
    them is not asked.
    """
    fresh, stored = Bank.create(path, bank.spec), Periods(bank._store, bank.snapshot.periods)
    coming = [afresh(fresh, stored, period, tables[period]) for period in bank.period_names]

    def contribute(head: Snapshot, spec: Spec, transaction: Transaction) -> Change:
        entries = {
            new.name: PeriodEntry(position=k, files=new.shelf.adopt(transaction, new.name, new.files), info=new.info)
            for k, new in enumerate(coming)
        }
        return Change("everything", spec, entries, bank.snapshot.acts)

    make_next_version(fresh._store, contribute, reason="", clock=Clock(None))
    return fresh.refresh()


def afresh(fresh: Bank, stored: Periods, period: str, table: pl.DataFrame) -> NewPeriod:
    """A period of another bank as it came, under the spec it came with."""
    own = stored[period]
    spec = Spec.parse(tomllib.loads(read_bytes(stored.store, own.reader.entry("spec")).decode()))
    calibration, states = own.calibration(), {k: v for k, v in own.coding().items() if v is not None}
    persons = None if calibration.abilities is None else calibration.abilities.person_ids
    shelf = Shelf(fresh._store, period, secrets.token_hex(16))
    files = keep_calibration(shelf, calibration, spec)
    return new_period(shelf, files, spec, states, items=table, persons=persons)


def assert_same(bank: Version, fresh: Version, tolerance: float) -> None:
    left, right = Periods.of(bank._store, bank.snapshot), Periods.of(fresh._store, fresh.snapshot)
    assert bank.reference == fresh.reference
    assert bank.design_states() == fresh.design_states()
    same(items_of_tables(left), items_of_tables(right))
    assert bank.items().height == fresh.items().height
    if not bank.period_names:
        return
    assert bank.consensus().warnings == fresh.consensus().warnings
    for one, two in ((bank.items(), fresh.items()), (bank.links(), fresh.links()), (bank.drift(), fresh.drift())):
        assert_frame_equal(one, two, abs_tol=tolerance, rel_tol=tolerance, check_exact=False)


class History(RuleBasedStateMachine):
    """A bank, changed by one or two writers in any order."""

    method = "analytic"
    methods = ("analytic", "paper")
    tolerance = 1e-9

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())

    @initialize(formula=st.sampled_from(["A", "B"]), starts=st.lists(first, max_size=4))
    def create(self, formula: str, starts: list[int]) -> None:
        content = SPEC.model_dump(exclude_none=True)
        content["groups"]["vocabulary"]["features"] = FORMULAS[formula]
        content["consensus"]["method"] = self.method
        self.bank = Bank.create(self.folder / "bank", Spec.parse(content))
        self.half_life: float | None = None
        self.given: dict[str, pl.DataFrame] = {}
        for period, first in zip(NAMES, starts, strict=False):
            self.add(period, first, 1, 0, {}, False)

    def attempt(self, work: Callable[[], Any]) -> bool:
        """Do it; what the bank refuses (no such period, too few anchors) leaves it as it was."""
        before = self.bank.refresh().version
        try:
            work()
        except ConcalError:
            assert self.bank.refresh().version == before
            return False
        self.bank.refresh()
        return True

    def changed(self, bank: Bank, change: dict[str, Any]) -> Spec:
        content = bank.spec.model_dump()
        groups = content["groups"]
        if "formula" in change:
            groups["vocabulary"]["features"] = FORMULAS[change["formula"]]
        if "half_life" in change:
            content["consensus"]["half_life"] = change["half_life"]
        content["linking"] |= change.get("linking", {})
        if "third" in change:
            content["groups"] = {name: group for name, group in groups.items() if name not in THIRD}
        if change.get("third"):
            content["groups"][change["third"]] = {"model": "2pl", "dimension": "reading"}
        return Spec.parse(content)

    def put(self, bank: Bank, name: str, first: int, extra: int, seed: int, change: dict[str, Any], **how: Any) -> None:
        """Add a period under a changed spec and remember what came with it."""
        spec = self.changed(bank, change)
        table, answers = (
            item_table(first, extra, third_group(spec)),
            responses(name, first, seed, third_group(spec)),
        )
        bank.add(name, answers, table, spec=spec, seed=seed, **{"calibrator": by_person_group, **how})
        self.given[name] = table
        self.half_life = change.get("half_life", self.half_life)

    @rule(name=name, first=first, extra=seed, seed=seed, change=changes, replace=st.booleans())
    def add(self, name: str, first: int, extra: int, seed: int, change: dict[str, Any], replace: bool) -> None:
        replace = replace and name in self.bank.period_names
        self.attempt(lambda: self.put(self.bank, name, first, extra, seed, change, replace=replace))

    @rule(name=name, first=first, seed=seed)
    def import_draws(self, name: str, first: int, seed: int) -> None:
        spec = self.bank.spec
        items = item_table(first, 2, third_group(spec))
        checked = check_period(responses(name, first, seed, third_group(spec)), items, spec, period=name)
        made = fake_calibrator(checked.data, spec, period=name, seed=seed)
        draws = {f"{what}_{g}": getattr(d, what) for g, d in made.groups.items() for what in ("xi", "beta", "sigma")}
        ids = {g: d.item_ids for g, d in made.groups.items()}

        def work() -> None:
            calibration, states = calibration_from_draws(
                name, draws, spec, item_ids=ids, items=items, design_states=self.bank.design_states()
            )
            self.bank.add_calibration(calibration, design_states=states, items=items)

        if self.attempt(work):
            self.given[name] = items

    @precondition(lambda self: self.bank.period_names)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        period = data.draw(st.sampled_from(self.bank.period_names))
        self.attempt(lambda: self.bank.retract(period))

    @precondition(lambda self: self.bank.period_names)
    @rule(data=st.data())
    def combine(self, data: st.DataObject) -> None:
        others = {"method": st.sampled_from(self.methods), "robust_links": st.booleans(), "half_life": half_life}
        options = data.draw(st.fixed_dictionaries({}, optional=others))
        if self.attempt(lambda: self.bank.combine(**options)):
            self.half_life = options.get("half_life", self.half_life)

    @precondition(lambda self: self.bank.period_names)
    @rule(data=st.data())
    def rereference(self, data: st.DataObject) -> None:
        period = data.draw(st.sampled_from(self.bank.period_names))
        self.attempt(lambda: self.bank.rereference(period))

    @precondition(lambda self: self.bank.period_names)
    @rule(data=st.data(), period=name)
    def exclude(self, data: st.DataObject, period: str) -> None:
        item, group = data.draw(st.sampled_from(self.answered())), data.draw(person_group)
        self.attempt(lambda: self.bank.exclude(item, period, person_group=group))

    @precondition(lambda self: any(act.kind == "exclude" for act in self.bank.snapshot.acts))
    @rule(data=st.data())
    def include(self, data: st.DataObject) -> None:
        act = data.draw(st.sampled_from([act for act in self.bank.snapshot.acts if act.kind == "exclude"]))
        self.attempt(lambda: self.bank.include(act.item, act.periods[0], person_group=act.person_group or None))

    @precondition(lambda self: self.bank.period_names)
    @rule(data=st.data(), periods=st.lists(name, min_size=1, max_size=2, unique=True), onwards=st.booleans())
    def split(self, data: st.DataObject, periods: list[str], onwards: bool) -> None:
        item = data.draw(st.sampled_from(self.answered()))
        self.attempt(lambda: self.bank.split(item, periods, onwards=onwards))

    @precondition(lambda self: self.bank.period_names)
    @rule(data=st.data(), name=name, first=first, seed=seed, onwards=st.booleans())
    def split_and_add_in_either_order(
        self, data: st.DataObject, name: str, first: int, seed: int, onwards: bool
    ) -> None:
        """The same periods and decisions: whichever came first, and whatever is retracted then."""
        if name in self.bank.period_names:
            return
        item, others = data.draw(st.sampled_from(self.answered())), st.sampled_from(self.bank.period_names)
        since, gone, third = data.draw(others), data.draw(others), third_group(self.bank.spec)
        table, answers = item_table(first, 1, third), responses(name, first, seed, third)
        steps: list[Callable[[Bank], Any]] = [
            lambda bank: bank.split(item, since, onwards=onwards),
            lambda bank: bank.add(name, answers, table, seed=seed, calibrator=by_person_group),
        ]
        reached = []
        for order in (steps, steps[::-1]):
            bank = Bank(shutil.copytree(self.bank.path, self.folder / f"order-{len(reached)}-{secrets.token_hex(4)}"))
            try:
                for step in (*order, lambda bank: bank.retract(gone)):
                    step(bank)
            except ConcalError:
                return
            reached.append(bank)
        assert_same(*reached, 1e-12)
        assert reached[0].snapshot.acts == reached[1].snapshot.acts

    @precondition(lambda self: any(act.kind == "split" for act in self.bank.snapshot.acts))
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        act = data.draw(st.sampled_from([act for act in self.bank.snapshot.acts if act.kind == "split"]))
        self.attempt(lambda: self.bank.join(act.new_id))

    @precondition(lambda self: self.bank.period_names)
    @rule(data=st.data())
    def do_and_undo(self, data: st.DataObject) -> None:
        """An act and its opposite leave every number as it was."""
        before, item = self.bank.at(self.bank.version), data.draw(st.sampled_from(self.answered()))
        period = data.draw(st.sampled_from(self.bank.period_names))
        group = data.draw(person_group)
        if self.attempt(lambda: self.bank.exclude(item, period, person_group=group)):
            self.bank.include(item, period, person_group=group)
        if self.attempt(lambda: self.bank.split(item, period, new_id="another")):
            self.bank.join("another")
        assert_same(self.bank, before, 1e-12)

    def answered(self) -> list[str]:
        groups = self.bank.consensus(joint=False).groups.values()
        return [i for g in groups for i, n in zip(g.item_ids, g.n_periods, strict=True) if n > 0]

    @rule(
        name=name, first=first, seed=seed, change=changes.map(without_half_life), what=st.sampled_from(WRITES),
        other=name, other_first=first, other_half_life=half_life, other_change=changes,
    )  # fmt: skip
    def add_while_another_writes(
        self, name: str, first: int, seed: int, change: dict[str, Any], what: str, other: str, other_first: int,
        other_half_life: float | None, other_change: dict[str, Any],
    ) -> None:  # fmt: skip
        """A second writer commits while the first calibrates."""
        second = Bank(self.bank.path)

        def interleaved(*arguments: Any, **options: Any) -> Any:
            with suppress(ConcalError):
                if what == "add":
                    self.put(second, other, other_first, 1, 1, other_change)
                elif what == "combine":
                    second.combine(half_life=other_half_life)
                    self.half_life = other_half_life
                elif what in ("exclude", "split"):
                    getattr(second, what)("v03", other)
                else:
                    getattr(second, what)(other)
            return by_person_group(*arguments, **options)

        with suppress(ConcalError):
            self.put(self.bank, name, first, 0, seed, change, calibrator=interleaved)
        self.bank.refresh()

    def teardown(self) -> None:
        try:
            if hasattr(self, "bank"):
                assert self.bank.spec.consensus.half_life == self.half_life
                assert_same(self.bank, rebuilt(self.bank, self.folder / "fresh", self.given), self.tolerance)
        finally:
            shutil.rmtree(self.folder)


class JointHistory(History):
    """The same with the joint method: same seeds, same numbers."""

    method = "joint"
    methods = ("joint",)
    tolerance = 1e-6


def machine(kind: type[History], examples: int, steps: int) -> Any:
    case = kind.TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return case


TestHistory = machine(History, 12, 8)
TestJointHistory = pytest.mark.slow(machine(JointHistory, 10, 5))


@pytest.mark.slow
def test_thousands_of_histories() -> None:
    class Many(History):
        pass

    machine(Many, int(os.environ.get("CONCAL_HISTORIES", "1000")), 8)("runTest").runTest()


def test_columns_of_the_formula_a_period_was_calibrated_under_are_kept(tmp_path: Path) -> None:
    """A period of formula B in a bank that went back to A; afresh from its calibration items are predicted alike."""
    machine = History()
    try:
        machine.create(formula="B", starts=[0])
        machine.bank.retract("P0")
        machine.add_while_another_writes("P3", 0, 0, {"formula": "B"}, "add", "P0", 0, None, {"formula": "A"})
        assert machine.bank.period_names == ("P0", "P3")
        assert_same(machine.bank, rebuilt(machine.bank, tmp_path / "fresh", machine.given), 1e-9)
    finally:
        shutil.rmtree(machine.folder)


def test_a_period_that_an_exclusion_makes_hang_on_a_later_one(tmp_path: Path) -> None:
    """It waits for that one, and the bank is the one that is reached when the item is excluded at the end."""
    machine = History()
    try:
        machine.create(formula="A", starts=[4, 0])
        for name, first in (("P2", 10), ("P5", 6)):
            machine.add(name, first, 0, 0, {}, False)
        machine.bank.retract("P1")
        machine.bank.exclude("e11", "P0")
        links = machine.bank.links().filter(period="P2", dimension="writing")
        assert links["path"].to_list() in (["P2 > consensus > P0"], ["P2 > P5 > P0"])
        assert_same(machine.bank, rebuilt(machine.bank, tmp_path / "fresh", machine.given), 1e-9)
    finally:
        shutil.rmtree(machine.folder)


def test_the_joint_method_too(tmp_path: Path) -> None:
    """The same periods reached in two ways give the same joint consensus."""
    bank, given = Bank.create(tmp_path / "bank", SPEC), {}
    for period, first in (("P0", 0), ("P1", 2), ("P2", 4), ("P1", 6)):
        given[period] = item_table(first, 1)
        bank.add(
            period, responses(period, first, 0), given[period], calibrator=fake_calibrator,
            replace=period in bank.period_names,
        )  # fmt: skip
    bank.combine(half_life=3.0)
    bank.retract("P0")
    fresh = rebuilt(bank, tmp_path / "fresh", given)
    for either in (bank, fresh):
        either.combine(method="joint")
    assert_same(bank, fresh, 1e-6)


def test_acts_of_groups_of_examinees_in_any_order(tmp_path: Path) -> None:
    """Excluded for a group, split, excluded for all, the period replaced: the bank is that of periods and acts."""
    machine = History()
    try:
        machine.create(formula="A", starts=[0, 2, 4])
        machine.add("P1", 2, 0, 1, {}, True)
        machine.add("P2", 4, 0, 1, {}, True)
        bank = machine.bank
        bank.exclude("v05", "P1", person_group="b")
        bank.exclude("e05", "P2", person_group="a")
        bank.split("v05", ["P1", "P2"])
        bank.exclude("v05@P1", "P2", person_group="b")
        bank.exclude("e05", "P2")
        bank.include("e05", "P2")
        assert [act.person_group for act in bank.snapshot.acts] == ["b", "a", "", "b"]
        assert bank.items(["v05@P1"])["n_responses"][0] == 8
        assert_same(bank, rebuilt(bank, tmp_path / "fresh", machine.given), 1e-9)
        machine.add("P1", 2, 0, 0, {}, True)
        assert bank.refresh().items(["v05@P1"])["n_responses"][0] == 8 + 4, "without groups everybody counts"
        assert_same(bank, rebuilt(bank, tmp_path / "again", machine.given), 1e-9)
    finally:
        shutil.rmtree(machine.folder)
