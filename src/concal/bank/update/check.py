"""What may come in: a new name, examinees who count once, data that fit the bank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as changed
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from concal.bank.acts import NOTHING, Adjustment
from concal.bank.building.coding import merge_codings, used_coding
from concal.bank.building.new_period import NewPeriod
from concal.bank.building.periods import Periods
from concal.bank.building.spec import changes_in_force, read_spec, refuse_other_dimensions, refuse_other_groups
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import Snapshot
from concal.bank.store.store import Store
from concal.bank.tables.responses import read_persons
from concal.bank.update.request import Request
from concal.data.check import CheckedPeriod, check_period
from concal.data.deal import with_shards
from concal.data.doubts import refuse_single_responses
from concal.data.linkage import Linkage, linkage
from concal.data.people import plain
from concal.data.read import read_responses
from concal.errors import BankError, ConcalError, DataError, counted, first_few
from concal.names import check_safe_name, split_stratum
from concal.spec import Spec


def refuse_known(head: Snapshot, period: str, replace: bool) -> None:
    """A period is added once."""
    check_safe_name(period)
    twin = next((name for name in head.periods if name.lower() == period.lower()), None)
    if twin is not None and twin != period:
        raise BankError(f"period {period!r} differs from {twin!r} only by case; use one name")
    if twin is not None and not replace:
        raise BankError(
            f"period {period!r} is in the bank already (version {head.number}); use replace (--replace) to put this in "
            "its place, or retract it first"
        )
    if twin is None and replace:
        raise BankError(f"period {period!r} is not in the bank, so there is nothing to replace; periods: "
                        f"{first_few(head.ordered_periods()) or 'none'}")  # fmt: skip


def refuse_overlap(store: Store, start: Snapshot, head: Snapshot, new: NewPeriod) -> None:
    """Examinees of periods that came in while this one was calibrated."""
    known = {name: entry.files for name, entry in start.periods.items()}
    added = [name for name, entry in head.periods.items() if known.get(name) != entry.files and name != new.name]
    if not added or "persons" not in new.files:
        return
    own = read_persons(new.shelf.reader(new.files))
    back = returning(own, (FolderReader(store, head.periods[name].files) for name in added))
    if back.len():
        raise BankError(
            f"{counted(back.len(), 'examinee')} of period {new.name!r} also in {first_few(added)}, added while this "
            f"one was calibrated: {first_few(back.to_list())}; run the same command again"
        )


def people_twice(others: Periods, period: str, persons: pl.Series) -> tuple[str, ...]:
    """What to say of examinees whose draws come in though another period has them; nothing can be left out of draws.

    Refused where one period has them all.
    """
    back = {name: returning(persons, [other.reader]) for name, other in others.items()}
    back = {name: ids for name, ids in back.items() if ids.len()}
    if not back:
        return ()
    n, ids = persons.n_unique(), pl.concat(list(back.values())).unique().sort().to_list()
    whole = next((name for name, there in back.items() if there.len() == n), None)
    if whole is not None:
        raise BankError(
            f"all {counted(n, 'examinee')} of period {period!r} are in period {whole!r}: {first_few(ids)}; they would "
            f"count twice: to put these draws in the place of that period, add them as {whole!r} with replace "
            "(--replace), or retract it first"
        )
    where = ", ".join(f"{there.len():,} in {name!r}" for name, there in list(back.items())[:5])
    where += f" and {len(back) - 5} more periods" if len(back) > 5 else ""
    return (
        f"{len(ids):,} of {counted(n, 'examinee')} of these draws were in other periods when they came ({where}): "
        f"{first_few(ids)}; their responses count twice: leave these people out of one of the periods and add it again "
        "(replace, --replace)",
    )


def returning(persons: pl.Series, readers: Iterable[FolderReader]) -> pl.Series:
    """Which of these examinees any of the periods has; one period at a time, so memory does not grow with the past."""
    back = pl.Series("person_id", [], dtype=pl.String)
    for reader in readers:
        here = read_persons(reader)
        if here.len():
            back = pl.concat([back, persons.filter(persons.is_in(here.implode()))])
    return back.unique().sort()


def check(store: Store, head: Snapshot, asked: Request, *, whole_plan: bool = False) -> tuple[Spec, CheckedPeriod]:
    """Everything an update asks before it samples, and the spec it would sample under, its shards settled.

    `concal check` and `concal add` both call this and nothing else, so what passes the one is sampled by the other.
    `whole_plan`: the linkage plan has every period, also where the reference alone would do.
    """
    refuse_known(head, asked.period, asked.replace)
    used = asked.spec_on(known := read_spec(store, head.spec))
    refuse_other_dimensions(known, used, any(name != asked.period for name in head.periods))
    periods = Periods.of(store, head)
    found = check_data(periods, head.reference, asked, used, whole_plan=whole_plan)
    set_by_it = changes_in_force(known, used, tuple(dict.fromkeys((*periods, asked.period))))
    found = changed(found, warnings=(*set_by_it, *found.warnings))
    return with_shards(found.data, used, asked.shards, guided=guided(used, head)), found


def guided(spec: Spec, head: Snapshot) -> bool:
    """Whether the next period's items get priors from the bank."""
    return spec.calibration.prior == "bank" and bool(head.periods)


def check_data(
    periods: Periods,
    reference: str | None,
    asked: Request,
    spec: Spec,
    *,
    whole_plan: bool = False,
    ahead: Mapping[str, CheckedPeriod] | None = None,
) -> CheckedPeriod:
    """Check a period against what the bank knows: features, examinees, items.

    `ahead` are checked periods that will be in the bank before this one, in their order.
    """
    period, responses, wide = asked.period, asked.responses, asked.wide
    others, coming = periods.only(name for name in periods if name != period), dict(ahead or {})
    refuse_other_groups(spec, {name: other.models() for name, other in others.items()})
    earlier: dict[str, pl.Series] = {}
    by = NOTHING
    if others or coming:
        responses = read_responses(responses, wide=wide, options=spec.data)  # once: a large file takes its time
        rows = responses.rows
        persons = rows["person_id"].drop_nulls().unique()
        before = ((name, read_persons(other.reader)) for name, other in others.items())
        ahead_of_it = ((name, found.data.person_ids) for name, found in coming.items())
        # of every period only those this one may have, so that memory does not grow with the past
        spelt = plain(persons).unique()
        earlier = {
            name: ids.filter(plain(ids).is_in(spelt.implode())) for name, ids in chain(before, ahead_of_it) if ids.len()
        }
        ids = rows["item_id"].drop_nulls().unique().to_list()
        by = periods.acts.with_period(period).adjustment(period, map(str, ids))

    def as_called_here(name: str) -> dict[str, list[str]]:
        """An earlier period's items under the ids the new one has for them, where splits go on."""
        if name in coming:
            return _answered(coming[name])
        found = others[name].answered().items()
        return {dimension: [i for item in ids if (i := by.stored(item)) is not None] for dimension, ids in found}

    codings = [*(other.coding() for other in others.values()), *map(_coding, coming.values())]
    first = spec.bank.reference
    if first is None or first not in (period, *others, *coming):
        first = reference or next(iter(coming), period)

    def checked(known: list[str]) -> CheckedPeriod:
        itself: dict[str, dict[str, list[str]]] = {period: {}} if known and first == period else {}
        return check_period(
            responses,
            asked.items,
            spec,
            period=period,
            design_states=merge_codings(codings),
            earlier_persons=earlier,
            earlier_items={**itself, **{name: as_called_here(name) for name in known}} or None,
            wide=wide,
        )

    names = sorted([*others, *coming], key=lambda name: name != first)  # the reference first
    try:  # enough items in common with the reference: the other periods need not be read
        result = checked(names if whole_plan else names[:1])
    except ConcalError:
        if whole_plan or len(names) < 2:
            raise
        result = checked(names)
    if spec.calibration.prior != "bank" or not names:  # else slopes are known
        refuse_single_responses(result.data)
    earlier_tables = [(name, other.calibrated()) for name, other in others.items()]
    coming_tables = [(name, _items_of(data)) for name, data in coming.items()]

    def numbers_of(name: str) -> Mapping[str, int | None]:
        return _numbers(coming[name]) if name in coming else others[name].categories()

    refuse_moved(result, [*earlier_tables, *coming_tables], by, numbers_of)
    replaced = period in periods.entries
    if replaced or first == period:
        own = {d: [by.known_as(i) for i in ids if i not in by.excluded] for d, ids in _answered(result).items()}
        known = {name: other.answered() for name, other in others.items()}
        known |= {name: _answered(data) for name, data in coming.items()}
        sets = ", which sets the metric," if first == period else ""
        why = f"{period!r}{sets} is replaced" if replaced else f"{period!r} is the reference (bank.reference)"
        enough = spec.linking.min_anchors
        stored = {name: other.answered() for name, other in periods.items()}
        apart = linkage(stored, reference, enough).unlinked if reference in stored else ()
        refuse_unlinked(linkage({period: own, **known}, first, enough), period, why, apart)
    return result


def refuse_unlinked(plan: Linkage, period: str, why: str, before: Iterable[tuple[str, str]]) -> None:
    """Other periods that a period in a new place, or with other items, would leave without a way to the reference.

    Those that share too few items as the bank is (`before`, by dimension) are linked by what there is, with a warning.
    """
    known = set(before)
    left = list(dict.fromkeys(at[1] for at in plan.unlinked if at[1] != period and at not in known))
    if left:
        lines = "".join(f"\n  - {problem}" for name in left for problem in plan.problems(name))
        raise DataError(
            f"{counted(len(left), 'period')} would be left without a link, because {why}:{lines}\n"
            "keep the items in the period that they are linked by, or retract what they link first"
        )


def refuse_moved(
    found: CheckedPeriod,
    earlier: Iterable[tuple[str, pl.DataFrame]],
    by: Adjustment,
    numbers_of: Callable[[str], Mapping[str, int | None]],
) -> None:
    """Items that an earlier period has in another group, or with another number of categories: another item.

    Also those with the same number, declared for the group and not for the items or the other way round: a stratum is
    known by its name. `numbers_of` gives a period's numbers of categories, by stratum.
    """
    groups = _items_of(found).rename({"group": "now"})
    for period, table in earlier:
        ids = table["item_id"]
        if by != NOTHING:
            ids = pl.Series("item_id", [by.stored(item) for item in ids.to_list()], dtype=pl.String)
        known = table.select("group").with_columns(ids)
        moved = known.join(groups, on="item_id").filter(pl.col("group") != pl.col("now")).sort("item_id")
        if moved.height:
            there, here = numbers_of(period), _numbers(found)
            elsewhere = [
                split_stratum(was)[0] == split_stratum(now)[0] and there[was] == here[now]
                for was, now in moved.select("group", "now").iter_rows()
            ]
            if all(elsewhere):
                _refuse_declared_elsewhere(moved, period, here)
            moved = moved.filter(~pl.Series(elsewhere, dtype=pl.Boolean))
            was, now = moved["group"][0], moved["now"][0]
            raise DataError(
                f"{counted(moved.height, 'item')} in another group, or with another number of categories, than in "
                f"period {period!r}: {first_few(moved['item_id'].to_list())} ({was!r} there, {now!r} here); an item "
                "that is scored in another way is another item: give it a new item_id; if its number was wrong there "
                f"(too few for its scale, say), put {period!r} in again with the right one (--replace)"
            )


def _refuse_declared_elsewhere(moved: pl.DataFrame, period: str, numbers: Mapping[str, int | None]) -> None:
    """Items scored as ever, whose number of categories stands in another place than it did."""
    was, now = moved["group"][0], moved["now"][0]
    group, own = split_stratum(was)
    if own is None:
        remedy = f"set categories = {numbers[now]} for the group in bank.toml again"
    else:
        remedy = (
            f"take categories = {own} of the group out of bank.toml, or set it to what it was, and declare the number "
            "with the items (column categories or max_score of the item table)"
        )
    raise DataError(
        f"{counted(moved.height, 'item')} of group {group!r} scored as in period {period!r}, but the number of "
        f"categories is declared in another place: {first_few(moved['item_id'].to_list())} "
        f"({_declared(was)} there, {_declared(now)} here), and the bank tells strata apart by that: {remedy}"
    )


def _declared(stratum: str) -> str:
    return "the group's" if split_stratum(stratum)[1] is None else "the items' own"


def _numbers(found: CheckedPeriod) -> dict[str, int | None]:
    """Numbers of categories of a checked period's strata."""
    return {name: group.model.n_categories for name, group in found.data.groups.items()}


def _items_of(found: CheckedPeriod) -> pl.DataFrame:
    """item_id and group of a checked period's items."""
    rows = [(item, name) for name, group in found.data.groups.items() for item in group.item_ids]
    return pl.DataFrame(rows, schema={"item_id": pl.String, "group": pl.String}, orient="row")


def _answered(found: CheckedPeriod) -> dict[str, list[str]]:
    """Items with responses of a checked period, by dimension."""
    ids: dict[str, list[str]] = {}
    for group in found.data.groups.values():
        seen = np.bincount(group.item, minlength=len(group.item_ids)) > 0
        ids.setdefault(group.dimension, []).extend(np.array(group.item_ids, dtype=object)[seen].tolist())
    return ids


def _coding(found: CheckedPeriod) -> dict[str, Any]:
    """How a checked period codes its features, as the bank will keep it."""
    return used_coding(found.design_states, {name: group.features for name, group in found.data.groups.items()})
