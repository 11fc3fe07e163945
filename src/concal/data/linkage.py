"""Which periods share how many items, and how each of them reaches the reference."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from concal.errors import DataError, first_few

ItemIds = Mapping[str, Mapping[str, Collection[str]]]
"""Period -> dimension -> ids of the items that have responses."""

CONSENSUS = "consensus"


@dataclass(frozen=True)
class Linkage:
    """The linkage plan of a programme.

    Attributes
    ----------
    reference : str
    min_anchors : int
    n_items : dict of (dimension, period) -> int
    shared : dict of (dimension, period, period) -> int
        Items in common, both orders.
    chains : dict of (dimension, period) -> tuple of str
        From the period to the reference, e.g. ``("2026Q3", "2026Q2", "2026Q1")``; ``"consensus"`` stands for all
        periods linked by then, where only their union shares enough items; empty where there is no way.
    weakest : dict of (dimension, period) -> int
        Shared items of the chain's weakest step.
    items : dict of period -> dimension -> frozenset of str
        What the plan was made from, to plan again with one more period.
    """

    reference: str
    min_anchors: int
    n_items: Mapping[tuple[str, str], int]
    shared: Mapping[tuple[str, str, str], int]
    chains: Mapping[tuple[str, str], tuple[str, ...]]
    weakest: Mapping[tuple[str, str], int]
    items: Mapping[str, Mapping[str, frozenset[str]]]

    @property
    def unlinked(self) -> tuple[tuple[str, str], ...]:
        """(dimension, period) pairs that cannot reach the reference."""
        return tuple(key for key, chain in self.chains.items() if not chain)

    def problems(self, period: str | None = None) -> list[str]:
        """What to tell about each pair without a way to the reference."""
        found = []
        for dimension, name in self.unlinked:
            if period is not None and name != period:
                continue
            counts = [f"{n} with {b!r}" for (d, a, b), n in self.shared.items() if d == dimension and a == name]
            found.append(
                f"period {name!r} shares too few items of dimension {dimension!r} to be linked to the reference "
                f"{self.reference!r}: {', '.join(counts[:5]) or 'no other period has that dimension'}; "
                f"{self.min_anchors} are needed (linking.min_anchors)"
            )
        return found

    def table(self) -> pl.DataFrame:
        """One row per dimension and period: items, items shared with the reference, the chain and its weakest step."""
        rows = [
            {
                "dimension": dimension,
                "period": period,
                "items": n,
                "shared_with_reference": n
                if period == self.reference
                else self.shared.get((dimension, period, self.reference), 0),
                "chain": " > ".join(self.chains[dimension, period]) or None,
                "weakest_step": self.weakest.get((dimension, period)),
                "linked": bool(self.chains[dimension, period]),
            }
            for (dimension, period), n in self.n_items.items()
        ]
        types = {"dimension": pl.String, "period": pl.String, "items": pl.Int64, "shared_with_reference": pl.Int64}
        return pl.DataFrame(rows, schema={**types, "chain": pl.String, "weakest_step": pl.Int64, "linked": pl.Boolean})

    def pairs(self) -> pl.DataFrame:
        """Shared items per pair of periods and dimension."""
        rows = [(d, a, b, n) for (d, a, b), n in self.shared.items() if a < b]
        schema = {"dimension": pl.String, "period_1": pl.String, "period_2": pl.String, "shared": pl.Int64}
        return pl.DataFrame(rows, schema=schema, orient="row")


def linkage(items: ItemIds, reference: str, min_anchors: int = 10) -> Linkage:
    """Plan how every period reaches the reference, dimension by dimension.

    A period goes the shortest way over pairs of periods that share at least `min_anchors` items of the dimension; of
    equally short ways, the one whose weakest pair is strongest. Where no pair is strong enough, the union of all
    periods linked so far (the consensus) may be.

    Examples
    --------
    >>> plan = linkage({"Q1": {"reading": "abc"}, "Q2": {"reading": "bcd"}, "Q3": {"reading": "cde"}}, "Q1", 2)
    >>> plan.chains["reading", "Q3"]
    ('Q3', 'Q2', 'Q1')
    """
    if reference not in items:
        raise DataError(f"the reference {reference!r} is not among the periods {first_few(list(items))}")
    known = {p: {d: frozenset(ids) for d, ids in by.items() if ids} for p, by in items.items()}
    n_items: dict[tuple[str, str], int] = {}
    shared: dict[tuple[str, str, str], int] = {}
    chains: dict[tuple[str, str], tuple[str, ...]] = {}
    weakest: dict[tuple[str, str], int] = {}
    for dimension in dict.fromkeys(d for by in known.values() for d in by):
        sets = {p: by[dimension] for p, by in known.items() if dimension in by}
        n_items |= {(dimension, p): len(ids) for p, ids in sets.items()}
        counts = {(a, b): len(sets[a] & sets[b]) for a, b in combinations(sets, 2)}
        counts |= {(b, a): n for (a, b), n in counts.items()}
        shared |= {(dimension, a, b): n for (a, b), n in counts.items()}
        ways = _ways(sets, counts, reference, min_anchors)
        chains |= {(dimension, p): ways[p][0] if p in ways else () for p in sets}
        weakest |= {(dimension, p): way[1] for p, way in ways.items() if p != reference}
    return Linkage(reference, min_anchors, n_items, shared, chains, weakest, known)


_Way = tuple[tuple[str, ...], int]


def _ways(
    sets: Mapping[str, frozenset[str]], counts: Mapping[tuple[str, str], int], reference: str, enough: int
) -> dict[str, _Way]:
    """Chain to the reference and its weakest step, by breadth-first rounds; then through the consensus."""
    if reference not in sets:
        return {}
    ways: dict[str, _Way] = {reference: ((reference,), len(sets[reference]))}
    newest = [reference]
    while True:
        step: dict[str, _Way] = {}
        for period in sets:
            options = [
                (min(ways[via][1], counts[period, via]), via)
                for via in newest
                if period not in ways and counts[period, via] >= enough
            ]
            if options:
                weakest, via = max(options, key=lambda option: option[0])
                step[period] = ((period, *ways[via][0]), weakest)
        if not step:
            pooled = frozenset[str]().union(*(sets[p] for p in ways))
            common = {p: len(ids & pooled) for p, ids in sets.items() if p not in ways}
            step = {p: ((p, CONSENSUS, reference), n) for p, n in common.items() if n >= enough}
        if not step:
            return ways
        ways |= step
        newest = list(step)
