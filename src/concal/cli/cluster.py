"""Work on other machines: the option that names a cluster, and the command for a backlog of periods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from concal.cli.arguments import (
    AcceptOption,
    BankArgument,
    JsonOption,
    KeepResponsesOption,
    MaxSweepsOption,
    ReasonOption,
    SchedulerOption,
)
from concal.cli.bank import tell, update_data
from concal.cli.progress import shown_progress
from concal.cli.show import print_json


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("backfill")(backfill)


def backfill(
    bank: BankArgument,
    manifest: Annotated[
        Path, typer.Argument(metavar="MANIFEST", help="CSV, a line per period: period, responses, items.")
    ],
    scheduler: SchedulerOption = None,
    keep_responses: KeepResponsesOption = True,
    reason: ReasonOption = "",
    accept_unconverged: AcceptOption = False,
    max_sweeps: MaxSweepsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a backlog of periods in order; with --scheduler they are calibrated side by side on a Dask cluster.

    Periods that are in the bank already are left alone: after an interruption give the same command again. It stops at
    a period whose chains have not converged; those before it are in the bank, and with a larger --max-sweeps it goes on
    from there.

    Example: concal backfill bank backlog.csv --scheduler tcp://10.0.0.1:8786
    """
    from concal.bank.bank import Bank
    from concal.cli.ahead import compiled_ahead

    opened = Bank(bank)
    with shown_progress(not as_json) as report, compiled_ahead(g.kernel_model for g in opened.spec.groups.values()):
        done = opened.backfill(
            manifest,
            keep_responses=keep_responses,
            reason=reason,
            progress=report,
            accept_unconverged=accept_unconverged,
            max_sweeps=max_sweeps,
            cluster=scheduler,
        )
    if as_json:
        print_json([update_data(update) for update in done])
        return
    for update in done:
        tell(update, as_json)
    if not done:
        typer.echo("every period of the manifest is in the bank already")
