"""JSON schemas of what ``--json`` prints, by command; programs may rely on them."""

from __future__ import annotations

from typing import Any

from concal.cli import views

Schema = dict[str, Any]


def _of(kind: str | list[str], says: str, **more: Any) -> Schema:
    return {"type": kind, "description": says, **more}


def _text(says: str) -> Schema:
    return _of("string", says)


def _whole(says: str) -> Schema:
    return _of("integer", says)


def _maybe(kind: str, says: str) -> Schema:
    return _of([kind, "null"], says)


def _texts(says: str) -> Schema:
    return _of("array", says, items={"type": "string"})


def _rows(says: str, view: views.View) -> Schema:
    return {**view.schema(), "description": says}


def _object(says: str, properties: dict[str, Schema], *, optional: tuple[str, ...] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return _of("object", says, properties=properties, required=required, additionalProperties=False)


_NUMBERS = _of("object", "seconds by stage", additionalProperties={"type": ["number", "null"]})
_WARNINGS = _texts("statistical doubts, each with a count and the first five ids")

UPDATE = _object(
    "What an update did.",
    {
        "version": _whole("the bank's version after it"),
        "action": _text("what was done"),
        "period": _maybe("string", "period it was about"),
        "reference": _maybe("string", "period that sets the metric"),
        "method": _maybe("string", "consensus method"),
        "items": _whole("items of the bank"),
        "fallback_share": _maybe("number", "share of items with the population's distribution"),
        "converged": _maybe("boolean", "whether the calibration reached its targets"),
        "anchors": _of("array", "the period's own link: one row per dimension", items={"type": "object"}),
        "relinked": _texts("other periods that were linked anew"),
        "warnings": _WARNINGS,
        "seconds": _NUMBERS,
    },
)
SHOW = _object(
    "What a bank is.",
    {
        "name": _text("of the programme"),
        "path": _text("where it is"),
        "version": _whole("that is shown"),
        "written": _text("when"),
        "last_action": _text("what made the version"),
        "reference": _maybe("string", "period that sets the metric"),
        "dimensions": _texts("latent dimensions"),
        "groups": _of("object", "response model by item group", additionalProperties={"type": "string"}),
        "periods": _texts("in the order they were added"),
        "releases": _of("object", "version by release", additionalProperties={"type": "integer"}),
        "evaluations": _texts("names"),
        "acts": _texts("what was excluded and split"),
        "items": _of("object", "items by source", additionalProperties={"type": "integer"}),
        "method": _text("consensus method"),
        "warnings": _WARNINGS,
    },
    optional=("items", "method", "warnings"),
)
CHECK = _object(
    "What is known of a period before sampling.",
    {
        "period": _text("name of the period"),
        "responses": _whole("responses that would be used"),
        "persons": _whole("examinees"),
        "returning": _whole("examinees an earlier period has"),
        "warnings": _WARNINGS,
        "groups": _rows("counts per item group", views.GROUPS),
        "exposure": _rows("responses per item", views.EXPOSURE),
        "persons_exposure": _rows("responses per examinee", views.PERSONS),
        "linkage": {"anyOf": [_rows("how the periods reach the reference", views.LINKAGE), {"type": "null"}]},
    },
)
EVALUATION = _object(
    "Agreement of the consensus with the pooled fit.",
    {
        "agreement": _of("array", "by method, dimension, model and parameter", items={"type": "object"}),
        "overall": _of("array", "by method and parameter", items={"type": "object"}),
        "distance": _rows("distance from the pooled fit, and whose it is", views.DISTANCE),
        "abilities": _rows("linked period fits against the pooled fit", views.ABILITIES),
        "fallback": _of("object", "share and number of items with the population fallback, by method"),
        "cost": _of("object", "pooled_seconds, pooled_peak_mib, update_seconds by period"),
        "recovery": _of("array", "RMSE and coverage, where the truth is known", items={"type": "object"}),
        "reference": _text("period that sets the metric"),
        "periods": _texts("the reference first"),
        "max_rhat": _of("number", "of the screen"),
        "warnings": _WARNINGS,
        "version": _maybe("integer", "version of the bank that was evaluated"),
        "report": _text("demo: the report's file"),
        "seconds": _NUMBERS,
        "compile_seconds": _of("number", "demo: how many of the seconds were spent compiling"),
    },
    optional=("report", "seconds", "compile_seconds"),
)
EXPORT = _object(
    "What was written.",
    {
        "path": _text("file"),
        "format": _text("format"),
        "items": _whole("items written"),
        "left_out": _texts("items the other software has no model for"),
        "unconverged": _texts("items whose chains had not converged in some period"),
    },
)
RELEASE = _object(
    "A release.",
    {
        "format": _whole("of the bank's files"),
        "name": _text("of the release"),
        "snapshot": _whole("version it froze"),
        "sha256": _text("hash of that version's manifest"),
        "written": _text("when"),
        "author": _text("by whom"),
        "note": _text("as given"),
    },
)
VERIFY = _object(
    "Whether every byte is what it was.",
    {
        "ok": _of("boolean", "no damage"),
        "versions": _whole("read"),
        "files": _whole("read"),
        "bytes": _whole("read"),
        "problems": _texts("what is damaged"),
        "unknown": _texts("files no version needs"),
    },
)
PRUNE = _object(
    "What was removed.",
    {
        "versions": _of("array", "versions forgotten", items={"type": "integer"}),
        "files": _texts("files removed"),
        "bytes": _whole("freed"),
        "dry_run": _of("boolean", "nothing was removed, only said"),
    },
)
REPORT = _object("The report.", {"path": _text("file"), "bytes": _whole("its size")})
SIMULATE = _object(
    "What was simulated.",
    {
        "periods": _rows("one row per period", views.SIMULATED),
        "spec": _text("bank.toml"),
        "items": _text("item table"),
        "truth": _text("folder with the true values"),
    },
)
START = _object(
    "What was found in the files, and the drafts.",
    {
        "layout": _text("long or wide"),
        "person": _text("column of the examinees"),
        "item": _maybe("string", "column of the items, of a long table"),
        "score": _maybe("string", "column of the scores, of a long table"),
        "other_columns": _texts("neither ids nor scores"),
        "persons": _whole("examinees"),
        "responses": _whole("responses"),
        "groups": _rows("proposed groups", views.DRAFTS),
        "features": _rows("item features", views.FEATURES),
        "examinee_groups": _texts("columns of the responses that could be data.person_group"),
        "odd": _texts("what a careful person would look at"),
        "files": _texts("written"),
        "accepted": _of("boolean", "whether `concal add` would take the drafts as they are"),
        "problems": _maybe("string", "why not"),
    },
)

OBJECTS: dict[str, Schema] = {
    "add": UPDATE,
    "backfill": _of("array", "one update per period that was added", items=UPDATE),
    "retract": UPDATE,
    "combine": UPDATE,
    "rereference": UPDATE,
    "exclude": UPDATE,
    "split": UPDATE,
    "init": SHOW,
    "show": SHOW,
    "check": CHECK,
    "evaluate": EVALUATION,
    "demo": EVALUATION,
    "export": EXPORT,
    "release": RELEASE,
    "verify": VERIFY,
    "prune": PRUNE,
    "report": REPORT,
    "simulate": SIMULATE,
    "start": START,
}
"""Commands that print one object; the others print the rows of their view."""


def output_schema(name: str) -> Schema:
    """JSON schema of what ``concal NAME --json`` prints."""
    body = OBJECTS[name] if name in OBJECTS else views.VIEWS[name].schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"concal {name} --json", **body}


def output_names() -> list[str]:
    """Names `output_schema` knows."""
    return sorted([*OBJECTS, *views.VIEWS])
