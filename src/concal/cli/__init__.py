"""The command line: parse, call, print. Heavy imports stay inside the commands, so that ``concal --help`` is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.models import CommandFunctionType

from concal.cli.arguments import Command
from concal.cli.cells import printable
from concal.errors import ConcalError

COMMAND_MODULES = [
    "concal.cli.start",
    "concal.cli.simulate",
    "concal.cli.check",
    "concal.cli.bank",
    "concal.cli.cluster",
    "concal.cli.decide",
    "concal.cli.look",
    "concal.cli.fit",
    "concal.cli.score",
    "concal.cli.reporting",
    "concal.cli.evaluate",
    "concal.cli.report",
    "concal.cli.demo",
    "concal.cli.doctor",
]
"""Modules with a ``register(app)`` that adds their commands, in the order of the help page."""


class App(typer.Typer):
    """The application; its commands are of our kind."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a command."""
        return super().command(name, **{"cls": Command, **options})


app = App(
    name="concal",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        from concal import __version__

        typer.echo(f"concal {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; works anywhere.")] = False,
) -> None:
    """Bayesian consensus calibration of continuously evolving IRT item banks.

    Example: concal check bank.toml 2026Q1 responses.csv --items items.csv
    """


for _module in COMMAND_MODULES:
    import_module(_module).register(app)


def main(arguments: list[str] | None = None) -> None:
    """Run a command: exit 0 on success, 2 on bad usage, 1 with a readable message otherwise."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        app(args=[word for word in given if word != "--debug"], prog_name="concal")
    except ConcalError as error:
        _fail(str(error), debug)
    except BrokenPipeError:  # the reader of a pipe went away: nothing is wrong here
        sys.stderr.close()
        sys.exit(1)
    except (OSError, MemoryError) as error:
        _fail(str(error) or type(error).__name__, debug)
    except Exception as error:
        _fail(f"unexpected {type(error).__name__}: {error}\nThis is a fault of concal; --debug shows where.", debug)


def _fail(message: str, debug: bool) -> NoReturn:
    if debug:
        raise  # the exception that is being handled
    lines = "\n".join(printable(line) for line in message.splitlines())
    typer.echo(f"error: {lines}", err=True)
    sys.exit(1)
