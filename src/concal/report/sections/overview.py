"""What this version is, whether it can be released, and what must be looked at."""

from __future__ import annotations

from concal.bank.tables.views import count_sources
from concal.evaluate.readiness import readiness, topics
from concal.report.pack import Block
from concal.report.printed import moment, printed, with_moments
from concal.report.section import Section
from concal.report.view import View


def section(view: View, block: Block) -> Section:
    """The verdict in words before any number."""
    found = topics(view.notices)
    sources = count_sources(*view.consensus.groups.values())
    periods = view.bank.periods()
    return Section(
        "overview",
        "Verdict",
        printed={
            "name": view.spec.bank.name,
            "version": view.bank.version,
            "written": moment(view.bank.snapshot.written),
            "reference": view.reference,
            "method": view.consensus.method,
            "dimensions": view.spec.bank.dimensions,
            "n_items": sum(sources.values()),
            "n_periods": len(view.periods),
            "n_responses": int(periods["n_responses"].sum()),
            "sources": sources,
            "readiness": readiness(found, view.released_as),
            "topics": found,
            "last": last_step(view),
            "history": printed(with_moments(view.history.reverse().head(10), "written")),
        },
    )


def last_step(view: View) -> str:
    """The last action that made the consensus what it is, in words."""
    steps = [row for row in view.history.iter_rows(named=True) if not row["action"].startswith("evaluate")]
    last = steps[-1]
    return f"{last['action']} (version {last['version']})" + (f": {last['reason']}" if last["reason"] else "")
