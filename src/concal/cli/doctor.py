"""``concal doctor``: is this machine fit for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from concal.cli import views
from concal.cli.arguments import JsonOption
from concal.cli.show import json_rows, print_json, print_view


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("doctor")(doctor)


def doctor(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where a bank would be written.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Versions, threads, kernel cache, free disk, and a small calibration that must come out right.

    Exit code 0 means that all is well.

    Example: concal doctor
    """
    typer.echo("looking; the first time on this machine the engine is compiled, which takes a minute ...", err=True)
    import polars as pl

    from concal.doctor import examine

    found = examine(folder)
    table = pl.DataFrame([(f.name, f.ok, f.seen) for f in found], schema=["check", "ok", "seen"], orient="row")
    if as_json:
        print_json(json_rows(table))
    else:
        print_view(table, views.DOCTOR)
    if not all(f.ok for f in found):
        raise typer.Exit(1)
