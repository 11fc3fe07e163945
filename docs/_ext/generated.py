"""Reference pages that are read off the code: bank.toml from the spec's fields, commands from their help."""

from __future__ import annotations

import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from docutils import nodes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class BankToml(SphinxDirective):
    """Every section and field of bank.toml, with type, default and description."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(bank_toml()), allow_section_headings=True)


class Commands(SphinxDirective):
    """Every command with its arguments, options and example."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(commands()), allow_section_headings=True)


class JsonOutputs(SphinxDirective):
    """What every command prints with --json."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(json_outputs()), allow_section_headings=True)


def json_outputs() -> Iterator[str]:
    """Markdown of the JSON schemas of commands' outputs."""
    from concal.cli.outputs import output_names, output_schema

    for name in output_names():
        schema = output_schema(name)
        rows = schema["type"] == "array"
        yield f"## {name}\n\n{schema.get('description', '')}{' A list of rows.' if rows else ''}\n"
        fields = schema["items"].get("properties", {}) if rows else schema.get("properties", {})
        if fields:
            yield "| key | type | |\n|---|---|---|"
            for key, own in fields.items():
                kind = own.get("type", "any")
                words = " or ".join(kind) if isinstance(kind, list) else str(kind)
                yield f"| `{key}` | {words} | {cell(own.get('description', ''))} |"
            yield ""


def bank_toml() -> Iterator[str]:
    """Markdown of the spec."""
    from concal.spec import Spec

    for name, field in Spec.model_fields.items():
        section = section_of(field)
        title = f"[{name}.NAME]" if name in ("groups", "reporting") else f"[{name}]"
        yield f"## `{title}`\n\n{' '.join((section.__doc__ or '').split())}\n"
        yield "| field | value | default | |\n|---|---|---|---|"
        for key, own in section.model_fields.items():
            yield f"| `{key}` | {kind(own)} | {default(own)} | {cell(own.description or '')} |"
        yield ""


def section_of(field: FieldInfo) -> type[BaseModel]:
    """The model of a section: its own type, or the values of a table of sections."""
    found = field.annotation
    for candidate in (found, *get_args(found)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    raise TypeError(f"{found} is not a section of bank.toml")


def kind(field: FieldInfo) -> str:
    """A field's type and bounds in words."""
    words = type_words(field.annotation)
    bounds = [f"{sign} {getattr(rule, key)}" for rule in field.metadata for key, sign in SIGNS if hasattr(rule, key)]
    return cell(", ".join([words, *bounds]))


SIGNS = (("gt", "over"), ("ge", "at least"), ("lt", "under"), ("le", "at most"))
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def type_words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(type_words(part) for part in inner if part is not type(None))
    if origin in (tuple, list):
        return f"list of {type_words(inner[0])}"
    if origin is dict:
        return f"table of {type_words(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table (" + ", ".join(f"`{key}`" for key in annotation.model_fields) + ")"
    return WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is PydanticUndefined or value is None:
        return "–"
    return cell(f"`{str(value).lower() if isinstance(value, bool) else value}`")


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def commands() -> Iterator[str]:
    """Markdown of every command, in the order of ``concal --help``."""
    import typer.main

    from concal.cli import app

    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        said, _, example = (command.help or "").partition("Example:")
        yield f"(command-{name})=\n## {name}\n\n{said.strip()}\n"
        yield f"```text\n{usage(name, command)}\n```\n"
        rows = [
            row for parameter in command.params if not getattr(parameter, "hidden", False) for row in told(parameter)
        ]
        if rows:
            yield "| | |\n|---|---|"
            yield from rows
            yield ""
        if example:
            yield f"Example:\n\n```text\n{example.strip()}\n```\n"


def usage(name: str, command: Any) -> str:
    """One line; arguments that may be left out stand in brackets."""
    words = [f"concal {name}"]
    for parameter in command.params:
        if parameter.param_type_name != "argument":
            continue
        shown = parameter.metavar or parameter.name.upper()
        words.append((shown if parameter.required else f"[{shown}]") + "..." * (parameter.nargs != 1))
    options = any(p.param_type_name == "option" and p.name != "help" for p in command.params)
    return " ".join([*words, *(["[OPTIONS]"] if options else [])])


def told(parameter: Any) -> Iterator[str]:
    """A row: how it is written, what it does, its choices and default."""
    text = cell(" ".join((parameter.help or "").split()))
    annotation = parameter.type_descriptor.annotation
    if parameter.param_type_name == "argument":
        yield f"| `{parameter.metavar or parameter.name.upper()}` | {text} |"
        return
    value = "" if parameter.is_flag else f" {parameter.metavar or PLACE.get(annotation, 'VALUE')}"
    written = ", ".join(f"`{name}{value}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if choices := choices_of(annotation):
        text += " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    if parameter.default not in (None, False, (), []) and not callable(parameter.default):
        shown = getattr(parameter.default, "value", parameter.default)
        text += f" Default: `{shown}`."
    yield f"| {written} | {text} |"


PLACE = {int: "N", float: "NUMBER", str: "TEXT", Path: "FILE"}


def choices_of(annotation: Any) -> list[str]:
    """What an option may be, where that is a list."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(member.value) for member in annotation]
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("concal-bank-toml", BankToml)
    app.add_directive("concal-commands", Commands)
    app.add_directive("concal-json", JsonOutputs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
