"""Arguments that several commands have: the same word for the same thing everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from concal.errors import SpecError


class Command(TyperCommand):
    """A command whose help names no type beside a flag: flags take no value."""

    def get_params(self, ctx: Any) -> Any:
        """All parameters, for parsing and for help."""
        found = super().get_params(ctx)
        for parameter in found:
            if isinstance(parameter, TyperOption) and parameter.is_flag:
                parameter.metavar = ""
        return found


class Method(StrEnum):
    """Consensus methods."""

    joint = "joint"
    analytic = "analytic"
    paper = "paper"


BankArgument = Annotated[
    str, typer.Argument(metavar="BANK", help="The bank's folder, or its address: s3://bucket/prefix, gs://, az://.")
]
PeriodArgument = Annotated[str, typer.Argument(metavar="PERIOD", help="Name of the period, e.g. 2026Q1.")]
RESPONSES = typer.Argument(
    metavar="RESPONSES",
    help="A row per response (or --wide): CSV, TSV, Excel, SPSS, Stata, SAS, Parquet, Feather, a folder of Parquet.",
)
ITEM_TABLE = typer.Option("--items", help="Item table: item_id, group, features.")
WideOption = Annotated[
    bool, typer.Option("--wide", help="One column per item; person ids are in the first, or the one bank.toml names.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="VERSION|RELEASE", help="Look back; default: the newest version.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Kept in the history.")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Put this in the place of a period the bank has.")]
KeepResponsesOption = Annotated[
    bool, typer.Option("--keep-responses/--no-keep-responses", help="Keep the responses for `concal evaluate`.")
]
MaxSweepsOption = Annotated[
    int | None,
    typer.Option("--max-sweeps", min=100, help="Another limit than calibration.max_sweeps, for this run."),
]
ShardsOption = Annotated[
    int | None, typer.Option("--shards", metavar="N", min=1, help="Calibrate N shards of examinees; see the guide.")
]
AcceptOption = Annotated[
    bool, typer.Option("--accept-unconverged", help="Take a period whose chains missed their targets, and mark it.")
]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Work on the Dask cluster of this scheduler.")
]


def _fdr(value: float | None) -> float | None:
    """A false discovery rate; another number is bad usage."""
    if value is None:
        return None
    from concal.bank.reading.diagnosis import check_fdr

    try:
        return check_fdr(value)
    except SpecError as error:
        raise typer.BadParameter(str(error)) from None


FdrOption = Annotated[
    float | None,
    typer.Option("--fdr", callback=_fdr, help="False discovery rate, between 0 and 1; default the spec's."),
]
LongOption = Annotated[bool, typer.Option("--long", help="One row per parameter, not per item.")]
FullOption = Annotated[bool, typer.Option("--full", help="Show all columns.")]
ToOption = Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Write to a .csv, .parquet or .json file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
