"""Every table as people see it, at three widths, and as programs read it.

``CONCAL_SNAPSHOTS=write pytest tests/cli/test_looks.py`` writes the snapshots anew; look at the difference.
"""

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest

from concal.cli import app, main
from concal.cli.outputs import output_names, output_schema
from concal.cli.views import VIEWS

LONG_ID = "reading-2026-form-B/passage-about-bees/question-12"
DIMENSIONS = {"reading", "writing"}
SNAPSHOTS = Path(__file__).parent / "snapshots"
TABLES = {
    "items": ["items", "BANK"],
    "items-asked": ["items", "BANK", "C12", LONG_ID, "C3"],
    "items-full": ["items", "BANK", "C3", "W3", "--full"],
    "items-long": ["items", "BANK", "C3", "W3", "--long"],
    "predict": ["predict", "BANK", "FOLDER/new.csv"],
    "periods": ["periods", "BANK"],
    "periods-full": ["periods", "BANK", "--full"],
    "periods-groups": ["periods", "BANK", "--groups"],
    "links": ["links", "BANK"],
    "links-full": ["links", "BANK", "--full"],
    "anchors": ["links", "BANK", "--period", "2026Q2"],
    "drift": ["drift", "BANK", "--at", "spring"],
    "drift-full": ["drift", "BANK", "--at", "spring", "--full"],
    "dif-none": ["dif", "BANK"],
    "fit": ["fit", "BANK", "--all"],
    "fit-bins": ["fit", "BANK", "C3", "--bins"],
    "fit-pairs": ["fit", "BANK", "C3", "--pairs"],
    "history": ["history", "BANK"],
    "acts": ["acts", "BANK"],
    "acts-none": ["acts", "BANK", "--at", "1"],
    "check": ["check", "BANK", "2026Q4", "FOLDER/2026Q4.csv", "--items", "FOLDER/items.csv"],
    "show": ["show", "BANK"],
    "reporting": ["reporting", "BANK"],
    "score": ["score", "BANK", "FOLDER/2026Q4.csv"],
    "information": ["information", "BANK", "C3", "C12", "W3", "--theta", "-1", "--theta", "0.5"],
    "information-items": ["information", "BANK", "C3", "C12", "W3", "--items"],
}


def run(words, bank, capsys) -> str:
    capsys.readouterr()
    asked = [w.replace("BANK", str(bank)).replace("FOLDER", str(bank.parent)) for w in words]
    with pytest.raises(SystemExit) as left:
        main(asked)
    assert not left.value.code, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("name", TABLES)
def test_as_people_see_it(name, width, looked_at, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = run(TABLES[name], looked_at, capsys).replace(str(looked_at), "bank")
    text = re.sub(r"(?m)^(path +).*$", r"\1bank", text)
    if name != "show":
        assert all(len(line) <= width for line in text.splitlines() if LONG_ID not in line)
        assert "…" not in text
    path = SNAPSHOTS / f"{name}-{width}.txt"
    if os.environ.get("CONCAL_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_every_view_with_a_bank_has_a_snapshot():
    assert set(VIEWS) - {"doctor", "dif"} <= set(TABLES)  # these: test_looks_alone.py


@pytest.mark.parametrize("name", TABLES)
def test_as_programs_read_it(name, looked_at, capsys):
    asked = {"items-asked": "items", "items-full": "items"}
    schema = asked.get(name, name.removesuffix("-full").removesuffix("-none"))
    found = json.loads(run([*TABLES[name], "--json"], looked_at, capsys))
    jsonschema.validate(found, output_schema(schema))
    if isinstance(found, list) and schema in VIEWS and found:
        unknown = {key for row in found for key in row} - set(VIEWS[schema].columns)
        unknown = {key for key in unknown if not (schema == "score" and key.rpartition("_")[2] in DIMENSIONS)}
        further = {"c", "phi"} | {f"{p}{end}" for p in ("c_1", "c_2", "c_3", "log_phi") for end in ("", "_mean", "_sd")}
        assert not unknown - further


def test_schemas_are_schemas(capsys):
    for name in output_names():
        jsonschema.Draft202012Validator.check_schema(output_schema(name))
    with pytest.raises(SystemExit):
        main(["schema", "drift"])
    assert json.loads(capsys.readouterr().out)["title"] == "concal drift --json"
    with pytest.raises(SystemExit) as left:
        main(["schema", "nothing"])
    assert left.value.code == 2


def test_ids_are_sorted_as_people_do(looked_at, capsys):
    ids = [row["item_id"] for row in json.loads(run(["items", "BANK", "--json"], looked_at, capsys))]
    assert ids.index("C3") < ids.index("C12")


def test_nothing_drifted(looked_at, capsys):
    assert run(["drift", "BANK", "--at", "1"], looked_at, capsys) == "nothing drifted\n"


def test_every_command_with_json_says_what_it_prints():
    commands = {c.name: c.callback for c in app.registered_commands}
    printing = {name for name, function in commands.items() if "as_json" in function.__annotations__}
    missing = printing - set(output_names())
    assert not missing, f"give {missing} a View in cli/views/ or an object in cli/outputs.py"


@pytest.mark.parametrize("option", ["--out", "--release", "--version"])
def test_one_language(option):
    """The same thing is asked for by the same option everywhere; demo and report also know --to as --out."""
    from typer.main import get_command

    for command, found in get_command(app).commands.items():
        for parameter in found.params:
            if option in parameter.opts:
                assert option == "--out", f"{command} {option}: --at VERSION|RELEASE looks back"
                assert "--to" in parameter.opts, f"{command} {option}: --to FILE writes"
