"""Acts on single items: exclude, split, and their opposites; each says why it is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from concal.bank.acts import Acts, in_words
from concal.bank.building.next_version import Change, Contribution
from concal.bank.building.periods import Periods
from concal.bank.building.stored_period import StoredPeriod
from concal.bank.store.manifest import Act, Snapshot
from concal.bank.store.transaction import Transaction
from concal.bank.tables.fit import responses_by_group
from concal.errors import BankError, first_few
from concal.spec import Spec


def exclude(item: str, period: str, *, person_group: str | None, reason: str) -> Contribution:
    """What the period says about an item does not count, or one group of examinees in it; see `Bank.exclude`."""

    def contribute(head: Snapshot, spec: Spec, transaction: Transaction) -> Change:
        periods = Periods.of(transaction.store, head)
        there = periods[period]
        stored = _answered_as(periods, item, there)
        if stored in there.adjustment.excluded:
            raise BankError(
                f"item {item!r} is excluded in period {period!r} already; `concal exclude --undo` lets it count again"
            )
        if person_group is not None:
            _refuse_group(there, item, stored, person_group)
        act = Act(kind="exclude", item=stored, periods=(period,), person_group=person_group or "", reason=reason)
        said = in_words(act.model_copy(update={"item": item}))
        return _changed(periods, head, spec, act, said, item)

    return contribute


def include(item: str, period: str, *, person_group: str | None) -> Contribution:
    """Undo an exclusion; see `Bank.include`."""

    def contribute(head: Snapshot, spec: Spec, transaction: Transaction) -> Change:
        names = {item}
        if period in head.periods:
            names = {Periods.of(transaction.store, head)[period].adjustment.stored(item) or item}
        whose = f" for {person_group}" if person_group else ""
        asked = ("exclude", (period,), person_group or "")
        undone = [a for a in head.acts if a.item in names and (a.kind, a.periods, a.person_group) == asked]
        if not undone:
            there = [in_words(a).removeprefix("exclude ") for a in head.acts if a.kind == "exclude"]
            raise BankError(
                f"item {item!r} is not excluded in period {period!r}{whose}; excluded are: {first_few(there) or 'none'}"
            )
        left = tuple(a for a in head.acts if a not in undone)
        return Change(f"include {item} in {period}{whose}", spec, head.periods, left)

    return contribute


def split(item: str, asked: Sequence[str], *, new_id: str | None, onwards: bool, reason: str) -> Contribution:
    """In some periods the item is another one; see `Bank.split`."""

    def contribute(head: Snapshot, spec: Spec, transaction: Transaction) -> Change:
        periods = Periods.of(transaction.store, head)
        for name in asked:
            _answered_as(periods, item, periods[name])
        order = head.ordered_periods()
        first = min(asked, key=order.index)
        named = order[order.index(first) :] if onwards else [name for name in order if name in asked]
        given = f"{item}@{first}" if new_id is None else new_id
        _refuse_id(periods, head, given)
        act = Act(kind="split", item=item, periods=tuple(named), onwards=onwards, new_id=given, reason=reason)
        return _changed(periods, head, spec, act, in_words(act), item, given)

    if not asked:
        raise BankError(f"splitting {item!r} needs at least one period")
    return contribute


def join(new_id: str) -> Contribution:
    """Undo a split; see `Bank.join`."""

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        act = next((a for a in head.acts if a.kind == "split" and a.new_id == new_id), None)
        if act is None:
            there = [a.new_id for a in head.acts if a.kind == "split"]
            raise BankError(f"no item was split off as {new_id!r}; there are: {first_few(there) or 'none'}")
        further = [a.new_id for a in head.acts if a.kind == "split" and a.item == new_id]
        if further:
            raise BankError(f"{new_id!r} was split further into {first_few(further)}; join that first")
        return Change(f"join {new_id} to {act.item}", spec, head.periods, tuple(a for a in head.acts if a != act))

    return contribute


def _calibrated(period: StoredPeriod) -> set[str]:
    """Items of a period's calibration, excluded ones too."""
    return set(period.calibrated()["item_id"].to_list())


def _answered_as(periods: Periods, item: str, period: StoredPeriod) -> str:
    """The id an item has in a period's data; refused where it was not answered there."""
    stored = period.adjustment.stored(item)
    if stored is not None and item in _calibrated(period):
        return stored
    seen = [name for name, other in periods.items() if item in _calibrated(other)]
    if not seen:
        raise BankError(f"there is no item {item!r} in any period; `concal items BANK` lists all")
    raise BankError(f"item {item!r} was not answered in period {period.name!r}; it was in {first_few(seen)}")


def _refuse_group(period: StoredPeriod, item: str, stored: str, person_group: str) -> None:
    """A group of examinees that cannot be left out of an item, and why."""
    answered = responses_by_group(period.reader)
    if not answered:
        raise BankError(
            f"period {period.name!r} has no groups of examinees (column person_group of its responses); exclude the "
            "item for everybody, or add the period again with its groups (concal add --replace)"
        )
    there, out = answered.get(stored, {}), period.adjustment.left_out.get(stored, {})
    if person_group in out:
        raise BankError(
            f"item {item!r} is excluded in period {period.name!r} for {person_group!r} already; "
            "`concal exclude --undo --person-group` lets it count again"
        )
    if person_group not in there:
        raise BankError(
            f"group {person_group!r} gave no response to item {item!r} in period {period.name!r}; those who did: "
            f"{first_few(sorted(there)) or 'nobody'}"
        )
    if set(there) - set(out) == {person_group}:
        raise BankError(
            f"only {person_group!r} is left of those who answered item {item!r} in period {period.name!r}; to let none "
            "of them count, exclude the item there without a group"
        )


def _refuse_id(periods: Periods, head: Snapshot, new_id: str) -> None:
    if not new_id.strip() or not new_id.isprintable():
        raise BankError(f"{new_id!r} cannot be an item's id; give another (--new-id)")
    taken = any(
        new_id in set(table["item_id"].to_list())
        for period in periods.values()
        for table in (period.calibrated(), period.listed())
    )
    if taken or any(new_id in (a.new_id, a.item) for a in head.acts):
        raise BankError(f"the id {new_id!r} is taken; give another (--new-id)")


def _changed(periods: Periods, head: Snapshot, spec: Spec, act: Act, action: str, *items: str) -> Change:
    """The change by one more act, unless one of the items is left without any period that counts."""
    acts = (*head.acts, act)
    after = replace(periods, acts=Acts(acts, periods.acts.order))
    left = Counter(item for period in after.values() for ids in period.answered().values() for item in ids)
    for item in items:
        if not left[item]:
            raise BankError(
                f"{action}: no period would be left that says anything about {item!r}, and every item keeps at least "
                "one; if its first periods differ from the later ones, split from the period after them"
            )
    return Change(action, spec, head.periods, acts)
