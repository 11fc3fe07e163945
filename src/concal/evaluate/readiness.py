"""A version in words: what it is, whether it can be released, and what must be looked at, by consequence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from concal.evaluate.notice import Notice

_TOPICS = {
    "consensus": ("Items' estimates", "Every score that uses these items rests on them."),
    "links": ("Links between periods", "A link that is off moves every score of its period."),
    "drift": ("Items that moved", "Scores that use such an item are off by its shift until it is excluded or split."),
    "fit": ("Items that do not fit", "Scores that use such an item are off where its curve is."),
    "calibration": ("Sampling", "Estimates of such a period carry noise that their SDs do not show."),
    "data": ("Items the periods share", "A period that hangs on few items has an uncertain link."),
    "agreement": ("Comparison with the pooled fit", "It says how near this bank is to one analysis of all data."),
}
"""Sections of the report a notice may point to, by consequence for scores: title, and why it matters."""


@dataclass(frozen=True)
class Entry:
    """Notices that say the same: the first in full, and the others."""

    level: str
    text: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topic:
    """What needs attention in one section of the report.

    Attributes
    ----------
    level : "problem" or "doubt"
        The worst of its entries.
    section, title, meaning : str
        Where to look, what it is about, and why it matters for scores.
    entries : tuple of Entry
        Problems first.
    """

    level: str
    section: str
    title: str
    meaning: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Readiness:
    """The first lines of a report.

    Attributes
    ----------
    answer : "ready", "look" or "wait"
    release : str
        Whether this version can be released, as a sentence.
    look : tuple of str
        What must be looked at, most consequential first.
    """

    answer: str
    release: str
    look: tuple[str, ...]


def topics(notices: Iterable[Notice]) -> tuple[Topic, ...]:
    """Notices by section, those with problems first, then by consequence; notices that say the same are one entry."""
    by_section: dict[str, list[Notice]] = {}
    for notice in notices:
        by_section.setdefault(notice.section, []).append(notice)
    rank = {section: place for place, section in enumerate(_TOPICS)}
    found = []
    for section, own in by_section.items():
        title, meaning = _TOPICS.get(section, (section, ""))
        level = "problem" if any(n.level == "problem" for n in own) else "doubt"
        found.append(Topic(level, section, title, meaning, _entries(own)))
    return tuple(sorted(found, key=lambda t: (t.level != "problem", rank.get(t.section, len(rank)))))


def _entries(notices: Sequence[Notice]) -> tuple[Entry, ...]:
    """Texts that differ in the period, in ids and in figures only are told once.

    >>> first, = _entries([Notice("doubt", "links", f"2026Q{k}: {k} anchors went") for k in (1, 2)])
    >>> first.text, first.more
    ('2026Q1: 1 anchors went', ('2026Q2: 2 anchors went',))
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for notice in sorted(notices, key=lambda n: n.level != "problem"):
        said = notice.text.partition(": ")[2] or notice.text
        alike.setdefault((notice.level, re.sub(r"'[^']*'|\w*[\d_]\w*|[\d.,]+", "#", said)), []).append(notice.text)
    return tuple(Entry(level, texts[0], tuple(texts[1:])) for (level, _), texts in alike.items())


def readiness(found: Sequence[Topic], released_as: Sequence[str] = ()) -> Readiness:
    """Can this version be released? Problems: not before they are solved; doubts: after a look at them."""
    problems = [topic for topic in found if topic.level == "problem"]
    doubts = [topic for topic in found if topic.level != "problem" and topic.section != "agreement"]
    look = tuple(topic.title for topic in (*problems, *doubts))
    if released_as:
        names = " and ".join(released_as)
        state = (
            "with open problems"
            if problems
            else "with doubts worth a look"
            if doubts
            else "and nothing speaks against it"
        )
        return Readiness("wait" if problems else "look" if doubts else "ready", f"Released as {names}, {state}.", look)
    if problems:
        return Readiness("wait", "Do not release this version before the problems below are solved or explained.", look)
    if doubts:
        return Readiness("look", "This version can be released once the doubts below were looked at.", look)
    return Readiness("ready", "Nothing speaks against releasing this version.", look)
