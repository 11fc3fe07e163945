"""The command about reported scores: what people are told instead of theta."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from concal.cli import views
from concal.cli.arguments import AtOption, BankArgument, FullOption, JsonOption, ReasonOption, ToOption
from concal.cli.bank import open_version
from concal.cli.show import show_table

if TYPE_CHECKING:
    import polars as pl

    from concal.spec import Spec


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(reporting.__name__)(reporting)


def reporting(
    bank: BankArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A dimension, or a composite's name: change its rule.")
    ] = None,
    slope: Annotated[float | None, typer.Option("--slope", help="Reported points per unit of theta.")] = None,
    intercept: Annotated[float | None, typer.Option("--intercept", help="Reported score at theta = 0.")] = None,
    low: Annotated[float | None, typer.Option("--min", help="Lowest score reported.")] = None,
    high: Annotated[float | None, typer.Option("--max", help="Highest score reported.")] = None,
    round_to: Annotated[float | None, typer.Option("--round", help="Scores are multiples of this.")] = None,
    weight: Annotated[
        list[str] | None, typer.Option("--weight", metavar="DIMENSION=WEIGHT", help="Of a composite; repeat it.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Report NAME no more.")] = False,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Take over the [reporting] section of a bank.toml.")
    ] = None,
    reason: ReasonOption = "",
    at: AtOption = None,
    full: FullOption = False,
    to: ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """How theta is reported, or change it: a new version with the same items.

    Options that are not given stay as they are; releases keep the rules they were made with.

    Example: concal reporting bank reading --slope 20 --intercept 100 --min 10 --max 160 --round 5
    """
    from concal.bank.bank import Bank

    given = {"slope": slope, "intercept": intercept, "min": low, "max": high, "round": round_to}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if weight:
        options["weights"] = _weights(weight)
    _check_usage(name, options, remove, source, at)
    version = open_version(bank, at)
    if name is not None or source is not None:
        changed = Bank(bank)
        known = changed.spec.reporting
        if source is not None:
            from concal.spec import Spec

            rules = {**dict.fromkeys(known), **Spec.read(source).reporting}
        elif remove:
            rules = {str(name): None}
        else:
            before = known[str(name)].model_dump(exclude_none=True) if name in known else {}
            rules = {str(name): {**before, **options}}  # type: ignore[dict-item]
        done = changed.set_reporting(rules, reason=reason)
        typer.echo(f"version {done.version}: {done.action}", err=True)
        version = changed
    show_table(reporting_table(version.spec), views.REPORTING, full=full, as_json=as_json, to=to)


def _check_usage(name: str | None, options: dict[str, Any], remove: bool, source: Path | None, at: str | None) -> None:
    """One change at a time, to the newest version."""
    if (options or remove) and name is None:
        raise typer.BadParameter("say which score: a dimension, or the name of a composite", param_hint="NAME")
    if name is not None and not options and not remove:
        raise typer.BadParameter("say what changes: --slope, --intercept, ..., or --remove", param_hint="NAME")
    if (options and remove) or (name is not None and source is not None):
        raise typer.BadParameter("--remove, --from and changes of one score exclude each other", param_hint="NAME")
    if at is not None and (name is not None or source is not None):
        raise typer.BadParameter("what was does not change; leave --at out", param_hint="--at")


def _weights(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in given:
        dimension, sign, value = text.rpartition("=")
        try:
            found[dimension] = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise typer.BadParameter(f"{text!r} is not DIMENSION=WEIGHT", param_hint="--weight")
    return found


def reporting_table(spec: Spec) -> pl.DataFrame:
    """The reporting section, one row per reported score."""
    import polars as pl

    numbers = ("slope", "intercept", "min", "max", "round")
    rows = [
        {
            "score": name,
            **{key: getattr(rule, key) for key in numbers},
            "weights": ", ".join(f"{d} {w:g}" for d, w in (rule.weights or {name: 1.0}).items()),
        }
        for name, rule in spec.reporting.items()
    ]
    return pl.DataFrame(rows, schema={"score": pl.String, **dict.fromkeys(numbers, pl.Float64), "weights": pl.String})
