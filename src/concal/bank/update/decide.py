"""Acts on single items: exclude, split, and their opposites; each says why it is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from concal.bank.acts import Acts, in_words
from concal.bank.building.next_version import Change
from concal.bank.building.periods import Periods
from concal.bank.building.progress import Progress, Update
from concal.bank.store.manifest import Act, Snapshot
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.bank.update.change import known_period, update
from concal.errors import BankError, first_few
from concal.spec import Spec


def exclude(store: Store, item: str, period: str, *, reason: str, progress: Progress | None) -> Update:
    """What the period says about an item does not count; see `Bank.exclude`."""

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        periods = Periods.of(store, head)
        known_period(head, period)
        stored = _answered_as(periods, item, period)
        if stored in periods.adjustment(period).excluded:
            raise BankError(
                f"item {item!r} is excluded in period {period!r} already; `concal exclude --undo` lets it count again"
            )
        act = Act(kind="exclude", item=stored, periods=(period,), reason=reason)
        return _changed(store, head, spec, (*head.acts, act), f"exclude {item} in {period}", item)

    return update(store, contribute, period, reason, progress)


def include(store: Store, item: str, period: str, *, reason: str, progress: Progress | None) -> Update:
    """Undo an exclusion; see `Bank.include`."""

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        names = {item}
        if period in head.periods:
            names = {Periods.of(store, head).adjustment(period).stored(item) or item}
        left = tuple(a for a in head.acts if not (a.kind == "exclude" and a.item in names and a.periods == (period,)))
        if left == head.acts:
            there = [f"{a.item} in {a.periods[0]}" for a in head.acts if a.kind == "exclude"]
            raise BankError(
                f"item {item!r} is not excluded in period {period!r}; excluded are: {first_few(there) or 'none'}"
            )
        return Change(f"include {item} in {period}", spec, head.periods, left)

    return update(store, contribute, period, reason, progress)


def split(
    store: Store,
    item: str,
    asked: Sequence[str],
    *,
    new_id: str | None,
    onwards: bool,
    reason: str,
    progress: Progress | None,
) -> Update:
    """In some periods the item is another one; see `Bank.split`."""

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        periods = Periods.of(store, head)
        for name in asked:
            known_period(head, name)
            _answered_as(periods, item, name)
        order = head.ordered_periods()
        first = min(asked, key=order.index)
        named = [name for name in order if name in asked]
        if onwards:
            named = [name for name in order[order.index(first) :] if item in _calibrated(periods, name)]
        given = f"{item}@{first}" if new_id is None else new_id
        _refuse_id(periods, head, given)
        act = Act(kind="split", item=item, periods=tuple(named), onwards=onwards, new_id=given, reason=reason)
        return _changed(store, head, spec, (*head.acts, act), in_words(act), item, given)

    if not asked:
        raise BankError(f"splitting {item!r} needs at least one period")
    return update(store, contribute, None, reason, progress)


def join(store: Store, new_id: str, *, reason: str, progress: Progress | None) -> Update:
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

    return update(store, contribute, None, reason, progress)


def _calibrated(periods: Periods, period: str) -> set[str]:
    """Items of a period's calibration, excluded ones too."""
    return set(periods.calibrated(period)["item_id"].to_list())


def _counting(periods: Periods, period: str) -> set[str]:
    """Items of a period with responses that count."""
    return {item for ids in periods.answered(period).values() for item in ids}


def _answered_as(periods: Periods, item: str, period: str) -> str:
    """The id an item has in a period's data; refused where it was not answered there."""
    stored = periods.adjustment(period).stored(item)
    if stored is not None and item in _calibrated(periods, period):
        return stored
    seen = [name for name in periods if item in _calibrated(periods, name)]
    if not seen:
        raise BankError(f"there is no item {item!r} in any period; `concal items BANK` lists all")
    raise BankError(f"item {item!r} was not answered in period {period!r}; it was in {first_few(seen)}")


def _refuse_id(periods: Periods, head: Snapshot, new_id: str) -> None:
    if not new_id.strip() or not new_id.isprintable():
        raise BankError(f"{new_id!r} cannot be an item's id; give another (--new-id)")
    taken = any(
        new_id in set(table["item_id"].to_list())
        for name in periods
        for table in (periods.calibrated(name), periods.listed(name, ()))
    )
    if taken or any(new_id in (a.new_id, a.item) for a in head.acts):
        raise BankError(f"the id {new_id!r} is taken; give another (--new-id)")


def _changed(store: Store, head: Snapshot, spec: Spec, acts: tuple[Act, ...], action: str, *items: str) -> Change:
    """The change, unless one of the items is left without any period that counts."""
    after = Periods(store, Periods.of(store, head).entries, acts=Acts(acts, head.ordered_periods()))
    left = Counter(item for name in after for item in _counting(after, name))
    for item in items:
        if not left[item]:
            raise BankError(
                f"{action}: no period would be left that says anything about {item!r}, and every item keeps at least "
                "one; if its first periods differ from the later ones, split from the period after them"
            )
    return Change(action, spec, head.periods, acts)
