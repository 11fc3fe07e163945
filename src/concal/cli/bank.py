"""Commands that make and change a bank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from concal.bank.exchange.formats import Format
from concal.cli.arguments import (
    ITEM_TABLE,
    RESPONSES,
    AcceptOption,
    AtOption,
    BankArgument,
    JsonOption,
    KeepResponsesOption,
    MaxSweepsOption,
    Method,
    PeriodArgument,
    ReasonOption,
    ReplaceOption,
    SchedulerOption,
    ShardsOption,
    WideOption,
)
from concal.cli.progress import shown_progress
from concal.cli.show import print_json, print_warnings
from concal.errors import counted, first_few

if TYPE_CHECKING:
    from concal.bank.building.progress import Update
    from concal.bank.version import Version


def open_version(bank: str, at: str | None) -> Version:
    """The newest version of a bank, or the one asked for: by the name of a release, or by number."""
    from concal.bank.bank import Bank

    opened = Bank(bank)
    if at is None:
        return opened
    if at.isdecimal() and at not in opened.releases():
        return opened.at(int(at))
    return opened.at(at)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (init, add, retract, combine, rereference, release, export, verify, prune):
        app.command(command.__name__)(command)


def init(
    bank: BankArgument,
    spec: Annotated[Path, typer.Option("--spec", help="The programme's bank.toml.")],
    as_json: JsonOption = False,
) -> None:
    """Make a new bank.

    Example: concal init bank --spec bank.toml
    """
    from concal.bank.bank import Bank
    from concal.spec import Spec

    made = Bank.create(bank, Spec.read(spec))
    if as_json:
        print_json(made.show())
    else:
        typer.echo(f"made {bank}: {counted(len(made.spec.groups), 'group')} on {', '.join(made.spec.bank.dimensions)}")


def add(
    bank: BankArgument,
    period: PeriodArgument,
    responses: Annotated[Path | None, RESPONSES] = None,
    items: Annotated[Path | None, ITEM_TABLE] = None,
    draws: Annotated[
        Path | None, typer.Option("--draws", help="Another engine's draws (ArviZ .nc or .zarr) instead of responses.")
    ] = None,
    legacy: Annotated[
        Path | None, typer.Option("--legacy", help="Item parameters with standard errors instead of responses.")
    ] = None,
    prior_included: Annotated[
        bool, typer.Option("--prior-included", help="With --legacy: estimates are posterior means and SDs.")
    ] = False,
    spec: Annotated[Path | None, typer.Option("--spec", help="A changed bank.toml, kept from now on.")] = None,
    wide: WideOption = False,
    replace: ReplaceOption = False,
    keep_responses: KeepResponsesOption = True,
    seed: Annotated[int | None, typer.Option("--seed", help="Default: the spec's.")] = None,
    reason: ReasonOption = "",
    restart: Annotated[bool, typer.Option("--restart", help="Ignore the checkpoint of an interrupted run.")] = False,
    scheduler: SchedulerOption = None,
    shards: ShardsOption = None,
    max_sweeps: MaxSweepsOption = None,
    accept_unconverged: AcceptOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add a period: check, calibrate, link, combine, commit. An interrupted run goes on where it was.

    A period whose chains have not converged is not committed; running again with a larger --max-sweeps goes on from
    where it stopped.

    Example: concal add bank 2026Q1 responses.csv --items items.csv
    """
    from concal.bank.bank import Bank
    from concal.cli.ahead import compiled_ahead

    if sum(source is not None for source in (responses, draws, legacy)) != 1:
        raise typer.BadParameter("give RESPONSES, or --draws FILE, or --legacy FILE", param_hint="RESPONSES")
    if responses is not None and items is None:
        raise typer.BadParameter("responses need the item table", param_hint="--items")
    opened = Bank(bank)
    with shown_progress(not as_json) as report:
        if responses is not None:
            changed = _read_spec(spec)
            with compiled_ahead(g.kernel_model for g in (changed or opened.spec).groups.values()):
                done = opened.add(
                    period,
                    responses,
                    items,
                    spec=changed,
                    wide=wide,
                    replace=replace,
                    keep_responses=keep_responses,
                    seed=seed,
                    reason=reason,
                    resume=not restart,
                    progress=report,
                    cluster=scheduler,
                    shards=shards,
                    accept_unconverged=accept_unconverged,
                    max_sweeps=max_sweeps,
                )
        elif draws is not None:
            done = opened.add_draws(
                period,
                draws,
                items=items,
                replace=replace,
                reason=reason,
                progress=report,
                accept_unconverged=accept_unconverged,
            )
        else:
            from concal.bank.exchange.legacy import legacy_calibration

            calibration, states = legacy_calibration(
                period,
                legacy,
                opened.spec,
                prior="included" if prior_included else "none",
                design_states=opened.design_states(),
                seed=seed or 0,
            )
            done = opened.add_calibration(
                calibration,
                design_states=states,
                replace=replace,
                reason=reason,
                progress=report,
                accept_unconverged=accept_unconverged,
            )
    tell(done, as_json)


def _read_spec(path: Path | None) -> Any:
    from concal.spec import Spec

    return None if path is None else Spec.read(path)


def update_data(done: Update) -> dict[str, Any]:
    """An update as plain data."""
    consensus = done.consensus
    return {
        "version": done.version,
        "action": done.action,
        "period": done.period,
        "reference": consensus.reference if consensus else None,
        "method": consensus.method if consensus else None,
        "items": sum(len(g.item_ids) for g in consensus.groups.values()) if consensus else 0,
        "fallback_share": consensus.fallback_share if consensus else None,
        "converged": done.convergence.converged if done.convergence else None,
        "anchors": done.link.diagnostics.to_dicts() if done.link is not None else [],
        "relinked": list(done.relinked),
        "warnings": list(done.warnings),
        "seconds": done.seconds,
        "cpu_seconds": {stage: cost.cpu_seconds for stage, cost in done.costs.items()},
        "peak_mib": {stage: cost.peak_mib for stage, cost in done.costs.items()},
    }


def tell(done: Update, as_json: bool) -> None:
    """Say what an update did."""
    data = update_data(done)
    if as_json:
        print_json(data)
        return
    mark = "" if data["converged"] is not False else " (not converged)"
    typer.echo(
        f"version {done.version}: {done.action}{mark}; "
        f"{counted(data['items'], 'item')} on the metric of {data['reference']}"
    )
    for row in data["anchors"]:
        typer.echo(
            f"  {row['dimension']}: {counted(row.get('anchors') or 0, 'anchor')}, "
            f"A = {row['A_mean']:.4f} (SD {row['A_sd']:.4f}), B = {row['B_mean']:.4f} (SD {row['B_sd']:.4f})"
        )
    if done.relinked:
        typer.echo(f"  linked anew: {', '.join(done.relinked)}")
    print_warnings(done.warnings)


def retract(bank: BankArgument, period: PeriodArgument, reason: ReasonOption = "", as_json: JsonOption = False) -> None:
    """Take a period out; periods linked through it are linked anew.

    Says which periods had left out examinees for it: add these again from their files (add --replace).

    Example: concal retract bank 2026Q1 --reason "leaked items"
    """
    from concal.bank.bank import Bank

    with shown_progress(not as_json, resumes=False) as report:
        done = Bank(bank).retract(period, reason=reason, progress=report)
    tell(done, as_json)


def combine(
    bank: BankArgument,
    method: Annotated[
        Method | None,
        typer.Option(
            "--method",
            help="joint: items, links and population together; analytic: streaming sums; paper: the published method.",
        ),
    ] = None,
    half_life: Annotated[
        float | None, typer.Option("--half-life", help="Periods after which old information counts half; 0: never.")
    ] = None,
    robust_links: Annotated[
        bool | None,
        typer.Option(
            "--robust-links/--no-robust-links",
            help="Keep items that disagree with their other periods from pulling the links (joint).",
        ),
    ] = None,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Combine the stored periods again under other options, which stay for later updates; none is calibrated again.

    Example: concal combine bank --method joint --no-robust-links
    """
    from concal.bank.bank import Bank

    options: dict[str, Any] = {}
    if half_life is not None:
        options["half_life"] = half_life or None
    if robust_links is not None:
        options["robust_links"] = robust_links
    with shown_progress(not as_json, resumes=False) as report:
        done = Bank(bank).combine(
            method=None if method is None else method.value, reason=reason, progress=report, **options
        )
    tell(done, as_json)


def rereference(
    bank: BankArgument, period: PeriodArgument, reason: ReasonOption = "", as_json: JsonOption = False
) -> None:
    """Put the bank on another period's metric: all periods are linked to it and combined, none is calibrated again.

    Example: concal rereference bank 2026Q3
    """
    from concal.bank.bank import Bank

    with shown_progress(not as_json, resumes=False) as report:
        done = Bank(bank).rereference(period, reason=reason, progress=report)
    tell(done, as_json)


def release(
    bank: BankArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the release.")],
    note: Annotated[str, typer.Option("--note", help="Kept with the release.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Freeze the newest version under a name, for good.

    Example: concal release bank fall-2026
    """
    from concal.bank.bank import Bank

    made = Bank(bank).release(name, note=note)
    if as_json:
        print_json(made.model_dump(mode="json"))
    else:
        typer.echo(f"release {made.name} is version {made.snapshot}")


def export(
    bank: BankArgument,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Where to write.")],
    at: AtOption = None,
    format: Annotated[Format | None, typer.Option("--format", help="Default: by the file's suffix.")] = None,
    period: Annotated[str | None, typer.Option("--period", help="With arviz: that period's draws.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the items for operations and for other software.

    Example: concal export bank --at fall-2026 --to items.csv
    """
    from dataclasses import asdict

    done = open_version(bank, at).export(to, format=format, period=period)
    if as_json:
        print_json(asdict(done) | {"path": str(done.path)})
        return
    typer.echo(f"{counted(done.items, 'item')} written to {done.path} ({done.format})")
    doubts = []
    if done.left_out:
        doubts.append(f"{counted(len(done.left_out), 'item')} without a counterpart there: {first_few(done.left_out)}")
    if done.unconverged:
        doubts.append(
            f"{counted(len(done.unconverged), 'item')} not converged in some period: {first_few(done.unconverged)}"
        )
    print_warnings(doubts)


def verify(bank: BankArgument, as_json: JsonOption = False) -> None:
    """Read every byte of every version and compare it with its hash.

    Example: concal verify bank
    """
    from dataclasses import asdict

    from concal.bank.store.store import Store
    from concal.bank.store.upkeep import verify as verify_store

    found = verify_store(Store.open(bank))
    if as_json:
        print_json({"ok": found.ok, **asdict(found)})
    else:
        typer.echo(
            f"{counted(found.versions, 'version')}, {counted(found.files, 'file')}, {counted(found.bytes, 'byte')} read"
        )
        for text in found.problems:
            typer.echo(f"damaged: {text}", err=True)
        if found.unknown:
            typer.echo(f"{counted(len(found.unknown), 'file')} no version needs; `concal prune` clears up")
    if not found.ok:
        raise typer.Exit(1)


def prune(
    bank: BankArgument,
    keep: Annotated[
        int | None, typer.Option("--keep", help="Also forget versions older than the newest N (never releases).")
    ] = None,
    grace_days: Annotated[float, typer.Option("--grace-days", help="Younger files stay.")] = 7.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files no version or release needs.

    Example: concal prune bank --keep 20
    """
    from dataclasses import asdict

    from concal.bank.bank import Bank

    done = Bank(bank).prune(keep=keep, grace_days=grace_days, dry_run=dry_run)
    if as_json:
        print_json({**asdict(done), "dry_run": dry_run})
    else:
        verb = "would remove" if dry_run else "removed"
        typer.echo(
            f"{verb} {counted(len(done.versions), 'version')} and {counted(len(done.files), 'file')}, "
            f"{counted(done.bytes, 'byte')}"
        )
