"""The report: one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from concal.bank.version import Version
from concal.report.data import ReportInput, gather
from concal.report.pack import script_json
from concal.report.sections import SECTIONS, figures, moment, tables
from concal.report.write import check_folder, write_whole

SCRIPTS = ("read.js", "plot.js", "table.js", "figures.js", "explorer.js", "page.js")


def write_report(bank: Version, out: str | Path | None = None, *, evaluation: str = "pooled") -> Path:
    """Write the report of a bank's version; returns where.

    Parameters
    ----------
    bank : Bank, or the version `Bank.at` gives
    out : path, optional
        Default: beside the bank's folder, ``<folder>-report.html``; of a bank on object storage, in this folder.
    evaluation : str
        Which evaluation the agreement section shows, if the bank has it.
    """
    path = Path(out) if out is not None else _beside(bank.path)
    check_folder(path)  # before the work
    write_whole(path, build_page(gather(bank, evaluation)).encode("utf-8"))
    return path


def _beside(place: Path | str) -> Path:
    """Where the report goes unless it is said."""
    here = Path() if isinstance(place, str) else place.parent
    return here / f"{str(place).rstrip('/').split('/')[-1] if isinstance(place, str) else place.name}-report.html"


def build_page(data: ReportInput) -> str:
    """The page as text: markup, style, scripts and data, nothing from outside."""
    content, block = figures(data)
    script = _script()
    return (
        _environment()
        .get_template("page.html")
        .render(
            data=data,
            sections=SECTIONS,
            tables=tables(data),
            moment=moment,
            style=_source("style.css"),
            script=script,
            script_hash=_hash(script),
            content=script_json(content),
            block=block,
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("concal.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0]


@cache
def _script() -> str:
    return '\n"use strict";\n' + "\n".join(_source(name) for name in SCRIPTS)


def _hash(script: str) -> str:
    """For the content security policy: this script runs, no other does."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
