"""``concal demo``: the whole method on a simulated programme."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from concal.cli import views
from concal.cli.arguments import JsonOption
from concal.cli.show import print_json, print_view

COMPILED = 0.5  # seconds of compilation worth a line


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("demo")(demo)


def demo(
    to: Annotated[Path, typer.Option("--to", "--out", metavar="DIR", help="A new or empty folder.")] = Path(
        "concal-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A small programme, in less than a minute.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the simulation.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Simulate four quarters of an evolving bank, run the method and the pooled benchmark, write the report.

    Example: concal demo --to concal-demo
    """
    typer.echo("loading and, the first time on this machine, compiling the engine ...", err=True)
    import polars as pl

    from concal.cli.ahead import compiled_ahead
    from concal.cli.evaluate import print_evaluation
    from concal.cli.progress import shown_progress
    from concal.demo import run_demo, specification

    models = [group.kernel_model for group in specification(quick).groups.values()]
    with compiled_ahead(models), shown_progress(not as_json) as work:
        made = run_demo(to, quick=quick, seed=seed, tell=lambda text: typer.echo(text, err=as_json), work=work)
    if as_json:
        print_json(
            {
                **made.evaluation.to_json(),
                "report": str(made.report),
                "seconds": made.seconds,
                "compile_seconds": made.compile_seconds,
            }
        )
        return
    print_evaluation(made.evaluation)
    if quick:
        typer.echo(
            "The quick programme is small and stops at looser targets; `concal demo` without --quick is the real one."
        )
    steps = [{"step": step, "seconds": seconds} for step, seconds in made.seconds.items()]
    print_view(pl.DataFrame(steps), views.STEPS)
    total = sum(made.seconds.values())
    if made.compile_seconds >= COMPILED:
        typer.echo(
            f"Compiling took {made.compile_seconds:.0f} s of it ({made.compile_seconds / total:.0%}); "
            "the next run finds the machine code."
        )
    typer.echo(f"Done in {total:.0f} s. Open the report: {made.report.resolve()}")
