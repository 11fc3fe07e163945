"""``concal report``: one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from concal.cli.show import JsonOption, print_json


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("report")(report)


def report(
    bank: Annotated[Path, typer.Argument(metavar="BANK", help="The bank's folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="Default: beside the bank, BANK-report.html.")] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="Which version, by number; default the newest.")
    ] = None,
    release: Annotated[str | None, typer.Option("--release", help="Which release.")] = None,
    evaluation: Annotated[str, typer.Option("--evaluation", help="Which evaluation to show.")] = "pooled",
    as_json: JsonOption = False,
) -> None:
    """Write the report of a bank: one HTML file that needs no network.

    Example: concal report bank --out report.html
    """
    from concal.bank.bank import Bank
    from concal.report.page import write_report

    if version is not None and release is not None:
        raise typer.BadParameter("give --release or --version, not both", param_hint="--release")
    opened = Bank(bank)
    which = release if release is not None else version
    path = write_report(opened if which is None else opened.at(which), out, evaluation=evaluation)
    size = path.stat().st_size
    if as_json:
        print_json({"path": str(path), "bytes": size})
    else:
        typer.echo(f"report written to {path} ({size / 1e6:.1f} MB)")
