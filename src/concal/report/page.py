"""The report: one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from concal.bank.version import Version
from concal.report.pack import Block, script_json
from concal.report.panels import PANELS
from concal.report.printed import DIGITS, WORDS
from concal.report.section import Section
from concal.report.sections import SECTIONS
from concal.report.view import THETA, View
from concal.report.write import check_folder, write_whole

LIBRARY = ("read.js", "plot.js", "table.js", "figure.js", "explorer.js")


def write_report(
    bank: Version, out: str | Path | None = None, *, evaluation: str = "pooled", since: int | str | None = None
) -> Path:
    """Write the report of a bank's version; returns where.

    Parameters
    ----------
    bank : Bank, or the version `Bank.at` gives
    out : path, optional
        Default: beside the bank's folder, ``<folder>-report.html``; of a bank on object storage, in this folder.
    evaluation : str
        Which evaluation the agreement section shows, if the bank has it.
    since : int or str, optional
        Version or release that the changes are counted from; default: the newest release before this version, or the
        version before the last change.
    """
    path = Path(out) if out is not None else _beside(bank.path)
    check_folder(path)  # before the work
    write_whole(path, build_page(View(bank, evaluation, since)).encode("utf-8"))
    return path


def _beside(place: Path | str) -> Path:
    """Where the report goes unless it is said."""
    here = Path() if isinstance(place, str) else place.parent
    return here / f"{str(place).rstrip('/').split('/')[-1] if isinstance(place, str) else place.name}-report.html"


def build_page(view: View) -> str:
    """The page as text: markup, style, scripts and data, nothing from outside."""
    block = Block(view.item_ids)
    sections = [module.section(view, block) for module in SECTIONS]
    content = {
        "name": view.spec.bank.name,
        "version": view.bank.version,
        "periods": list(view.periods),
        "theta": THETA.tolist(),
        "words": WORDS,
        "digits": DIGITS,
        "ids": block.text(view.item_ids),
        "sections": {section.key: section.drawn for section in sections},
    }
    script = _script(tuple(section.key for section in sections))
    return (
        _environment()
        .get_template("page.html")
        .render(
            name=view.spec.bank.name,
            version=view.bank.version,
            concal=view.bank.snapshot.concal,
            sections=[(section, _words(section)) for section in sections],
            style=_source("style.css"),
            script=script,
            script_hash=_hash(script),
            content=script_json(content),
            block=block.encoded(),
        )
    )


def _words(section: Section) -> str:
    """A section's own markup."""
    return _environment().get_template(f"sections/{section.key}.html").render(**section.printed)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("concal.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["code"] = _code
    return made


def _code(text: str) -> Markup:
    """Escaped text, with what stands between backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(p) if k % 2 else p for k, p in enumerate(parts))


def _source(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0]


@cache
def _script(keys: tuple[str, ...]) -> str:
    """The library, the panels' and the sections' figures where they have some, and the start."""
    drawn = [f"sections/{key}.js" for key in keys if f"sections/{key}.js" in _environment().list_templates()]
    names = [*LIBRARY, *(f"panels/{panel.KEY}.js" for panel in PANELS), *drawn, "page.js"]
    return '\n"use strict";\n' + "\n".join(_source(name) for name in names)


def _hash(script: str) -> str:
    """For the content security policy: this script runs, no other does."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
