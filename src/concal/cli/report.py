"""``concal report``: one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from concal.cli.arguments import AtOption, BankArgument, JsonOption
from concal.cli.bank import open_version
from concal.cli.show import print_json


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("report")(report)


def report(
    bank: BankArgument,
    to: Annotated[
        Path | None, typer.Option("--to", "--out", metavar="FILE", help="Default: beside the bank, BANK-report.html.")
    ] = None,
    at: AtOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="VERSION|RELEASE", help="What changes are counted from; default: last release."
        ),
    ] = None,
    evaluation: Annotated[str, typer.Option("--evaluation", help="Which evaluation to show.")] = "pooled",
    as_json: JsonOption = False,
) -> None:
    """Write the report of a bank: one HTML file that needs no network.

    Example: concal report bank --to report.html
    """
    from concal.report.page import write_report

    opened = open_version(bank, at)
    base = int(since) if since is not None and since.isdecimal() and since not in opened.releases() else since
    path = write_report(opened, to, evaluation=evaluation, since=base)
    size = path.stat().st_size
    if as_json:
        print_json({"path": str(path), "bytes": size})
    else:
        typer.echo(f"report written to {path} ({size / 1e6:.1f} MB)")
