"""What people decided about single items, and what that means for each period.

*Exclude*: in one period the item's responses do not count, or those of one group of examinees. *Split*: in some
periods, perhaps also in all later ones, the item goes under an id of its own. Both are data of the version. An act that
names a period the bank does not have rests: it does nothing until a period of that name is there (`Acts.idle`).

A split that goes on names every period from its first on, whether or not the item is in it, and every period that is
added later (`Acts.with_period`). So neither the order in which it was made and periods came matters, nor which of them
go.

Splits are applied in the order they were made, each to the id the item had by then. In a period whose own data already
have the new id nothing is renamed: the data say which item is which. Exclusions name the item as the period's data do,
so they hold whatever is split or joined. One of a group of examinees does nothing where no such group answered the
item; where exclusions leave no group, the item does not count at all.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from concal.bank.store.manifest import Act, Snapshot

Answered = Mapping[str, Mapping[str, int]]
"""Item -> group of examinees -> responses."""


@dataclass(frozen=True)
class Adjustment:
    """What acts do to one period.

    Attributes
    ----------
    renamed : dict of stored id -> id in the bank
    excluded : frozenset of str
        Stored ids of the items that do not count.
    left_out : dict of stored id -> dict of group of examinees -> responses
        Whose responses to an item that counts do not, and how many they are.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()
    left_out: Answered = field(default_factory=dict)

    def known_as(self, item: str) -> str:
        """The bank's id of an item of the period."""
        return self.renamed.get(item, item)

    def stored(self, item: str) -> str | None:
        """The id an item of the bank has in the period's data; None where the id now belongs to another."""
        for stored, known in self.renamed.items():
            if known == item:
                return stored
        return None if item in self.renamed else item

    @property
    def key(self) -> tuple[object, ...]:
        """Plain data: equal adjustments, equal key."""
        left_out = sorted((item, sorted(groups)) for item, groups in self.left_out.items())
        return (sorted(self.renamed.items()), sorted(self.excluded), left_out)


NOTHING = Adjustment()
NOBODY: Answered = {}
_NEXT = ""  # no period of a bank has this name


@dataclass(frozen=True)
class Acts:
    """The acts of a version, oldest first, and the order of its periods."""

    acts: tuple[Act, ...] = ()
    order: tuple[str, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Acts:
        """Those of a stored version."""
        return cls(snapshot.acts, snapshot.ordered_periods())

    def with_period(self, period: str) -> Acts:
        """The same with a period that is about to come: splits that go on name it too."""
        if period in self.order:
            return self
        acts = (
            act.model_copy(update={"periods": tuple(dict.fromkeys((*act.periods, period)))}) if act.onwards else act
            for act in self.acts
        )
        return Acts(tuple(acts), (*self.order, period))

    def covers(self, act: Act, period: str) -> bool:
        """Whether an act speaks of a period, whatever items the period has."""
        if period in act.periods:
            return True
        start = next((k for k, name in enumerate(self.order) if name in act.periods), None)
        return act.onwards and start is not None and period in self.order[start:]

    def idle(self, act: Act) -> bool:
        """Whether none of the periods an act names is there."""
        return not any(name in self.order for name in act.periods)

    def concern(self, period: str) -> bool:
        """Whether any act speaks of a period."""
        return any(self.covers(act, period) for act in self.acts)

    def concern_groups(self, period: str) -> bool:
        """Whether any act speaks of a group of examinees of a period."""
        return any(act.person_group and self.covers(act, period) for act in self.acts)

    def lapsed(self, period: str, answered: Answered) -> tuple[Act, ...]:
        """Exclusions of groups of examinees that gave no response to the item in the period."""
        own = (act for act in self.acts if act.person_group and self.covers(act, period))
        return tuple(act for act in own if not answered.get(act.item, {}).get(act.person_group))

    def adjustment(self, period: str, item_ids: Iterable[str], answered: Answered = NOBODY) -> Adjustment:
        """What they do to a period with these items, `answered` by groups of examinees where it has some."""
        stored = set(item_ids)
        now = {item: item for item in stored}  # id in the bank -> stored id
        excluded = set()
        for act in self.acts:
            if not self.covers(act, period):
                continue
            if act.kind == "exclude":
                if not act.person_group:
                    excluded |= {act.item} & stored
            elif act.item in now and act.new_id not in now:
                now[act.new_id] = now.pop(act.item)
        left_out = self._left_out(period, answered)
        excluded |= {item for item, groups in left_out.items() if len(groups) == len(answered[item])}
        renamed = {old: new for new, old in now.items() if new != old}
        left_out = {item: groups for item, groups in left_out.items() if item not in excluded}
        return Adjustment(renamed, frozenset(excluded), left_out)

    def _left_out(self, period: str, answered: Answered) -> dict[str, dict[str, int]]:
        """Groups of examinees excluded from items, of those that answered them."""
        found: dict[str, dict[str, int]] = {}
        for act in self.acts:
            n = answered.get(act.item, {}).get(act.person_group, 0) if self.covers(act, period) else 0
            if n:
                found.setdefault(act.item, {})[act.person_group] = n
        return found

    def meanings(self, period: str | None, items: Container[str]) -> dict[str, str]:
        """Items of the bank that ids mean in a period, or in one that would come next (None), where they are others.

        Every split that speaks of the period counts, whatever its own data say, and of the ids an item had one after
        the other the last that is among the bank's `items`.
        """
        name = _NEXT if period is None else period
        order = self.with_period(name)
        ids: dict[str, list[str]] = {}  # of an id: those its item had one after the other
        for act in order.acts:
            if act.kind == "split" and order.covers(act, name):
                for chain in (*ids.values(), ids.setdefault(act.item, [act.item])):
                    if chain[-1] == act.item:
                        chain.append(act.new_id)
        found = {old: next((i for i in reversed(chain) if i in items), chain[-1]) for old, chain in ids.items()}
        return {old: new for old, new in found.items() if old != new}


def in_words(act: Act) -> str:
    """An act as the history tells it."""
    if act.kind == "exclude":
        whose = f" for {act.person_group}" if act.person_group else ""
        return f"exclude {act.item} in {', '.join(act.periods)}{whose}"
    where = f"from {act.periods[0]} on" if act.onwards else f"in {', '.join(act.periods)}"
    return f"split {act.item} {where} as {act.new_id}"
