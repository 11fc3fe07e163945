"""The house rules that a reader cannot see at a glance: imports point one way, only `response` knows formats."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import concal
from concal.bank.exchange.export import CONTENT
from concal.bank.exchange.formats import Format
from concal.linking.criteria import CURVE_METHODS, MOMENT_METHODS
from concal.response import model_class, model_names
from concal.spec import LinkingSpec

ROOT = Path(concal.__file__).parent
ORDER = [
    {"errors"},
    {"allocator", "cost", "formula", "metric", "names", "shown"},
    {"response"},
    {"compiler"},
    {"spec"},
    {"data", "simulate"},
    {"calibration"},
    {"linking"},
    {"consensus"},
    {"score"},
    {"bank"},
    {"evaluate"},
    {"plot", "report"},
    {"demo", "doctor", "start"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
BANK_ORDER = [
    {"store"},
    {"acts"},
    {"tables"},
    {"building"},
    {"jobs"},
    {"update"},
    {"exchange", "evaluation", "reading", "scoring", "version"},
    {"bank"},
]
BANK_LEVEL = {room: level for level, rooms in enumerate(BANK_ORDER) for room in rooms}
FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, wherever it stands in the file."""
    package = ["concal", *path.relative_to(ROOT).with_suffix("").parts]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: -node.level], *([node.module] if node.module else [])] if node.level else [node.module]
            name = ".".join(str(part) for part in base)
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def wrong_way(path: Path) -> list[str]:
    here, found = room_of(path), []
    for line, name in imported_modules(path):
        parts = name.split(".")
        if parts[0] != "concal" or len(parts) < 2 or parts[1].startswith("__"):
            continue
        there = parts[1]
        if there not in LEVEL:
            found.append(f"{path.relative_to(ROOT)}:{line} imports {name}; give the room {there!r} a place in ORDER")
        elif there != here and LEVEL[there] >= LEVEL[here]:
            found.append(f"{path.relative_to(ROOT)}:{line} imports {name}: {here} may not know {there}")
    return found


def wrong_way_in_the_bank(path: Path) -> list[str]:
    """The bank's rooms in the order a version is made: files, tables, what a version is made of, jobs, updates."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "bank" or parts[1] == "__init__.py":
        return []
    here, found = parts[1].removesuffix(".py"), []
    for line, name in imported_modules(path):
        there = [*name.split("."), ""][2] if name.startswith("concal.bank.") else here
        if there != here and BANK_LEVEL.get(there, len(BANK_ORDER)) > BANK_LEVEL[here]:
            found.append(f"{path.relative_to(ROOT)}:{line} imports {name}: bank/{here} may not know {there}")
    return found


MODEL_NAMES = frozenset(model_names())
FAMILY_CLASSES = {model_class(name).__name__ for name in model_names()} | {
    f"{model_class(name).__name__}Tag" for name in model_names()
}
FAMILY_MODULES = {model_class(name).__module__ for name in model_names()}


def asks_format(path: Path) -> list[str]:
    """Comparisons with model names, instance tests on model classes, tables keyed by model, imports of families."""
    tree, found = tree_of(path), []
    for line, name in imported_modules(path):
        if any(name == module or name.startswith(f"{module}.") for module in FAMILY_MODULES):
            found.append(f"{path.name}:{line} imports the family {name}")
    for node in ast.walk(tree):
        what = None
        if isinstance(node, ast.Compare) and names_a_model([node.left, *node.comparators]):
            what = "compares with a model name"
        elif isinstance(node, ast.match_case) and names_a_model([node.pattern]):
            what = "matches a model name"
        elif isinstance(node, ast.Dict) and names_a_model([k for k in node.keys if k is not None]):
            what = "has a table keyed by model names"
        elif isinstance(node, ast.Call) and called(node) in ("isinstance", "issubclass"):
            mentioned = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            mentioned |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            if mentioned & FAMILY_CLASSES:
                what = "tests for a model class"
        if what:
            line = getattr(node, "lineno", None) or node.pattern.lineno
            found.append(f"{path.relative_to(ROOT)}:{line} {what}")
    return found


def names_a_model(nodes: list[ast.AST]) -> bool:
    """A model name among the constants; "beta" is also a population parameter, so it counts only beside a model."""
    constants = {
        n.value for node in nodes for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    hit = constants & MODEL_NAMES
    beside_model = any("model" in ast.unparse(node) for node in nodes if not isinstance(node, ast.pattern))
    return bool(hit - {"beta"}) or ("beta" in hit and beside_model)


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def looks_into_the_compiler(path: Path) -> list[str]:
    """The compiler layer is for kernels; others may ask where machine code is, what it is made of and what it cost."""
    allowed = tuple(f"concal.compiler.{name}" for name in ("cache_folder", "compile_seconds", "sources_hash"))
    parts = path.relative_to(ROOT).parts
    if parts[0] == "compiler" or any(part.startswith("kernels") for part in parts):
        return []
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}: only kernels look into the compiler"
        for line, name in imported_modules(path)
        if name.startswith("concal.compiler") and name not in allowed
    ]


def moves_by_hand(path: Path) -> list[str]:
    """A x + B and (x - B) / A outside `metric`: whatever is called A and B there is a link."""
    if path.relative_to(ROOT).as_posix() == "metric.py":
        return []
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} moves by hand: {ast.unparse(node)}; concal.metric has it"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.BinOp) and changes_metric(node)
    ]


def changes_metric(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    if isinstance(node.op, ast.Add):
        return any(scaled_by_A(one) and is_constant(other, "B") for one, other in (sides, sides[::-1]))
    shifted = isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Sub)
    return (
        isinstance(node.op, ast.Div) and is_constant(node.right, "A") and shifted and is_constant(node.left.right, "B")
    )


def scaled_by_A(node: ast.AST) -> bool:
    mult = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return mult and any(is_constant(side, "A") for side in (node.left, node.right))


def is_constant(node: ast.AST, name: str) -> bool:
    """A, A[...], link.A, row["A"], np.asarray(A) and their means."""
    while not isinstance(node, ast.Name | ast.Attribute):
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str):
                return key in (name, f"{name}_mean")
            node = node.value
        elif isinstance(node, ast.Call) and node.args:
            node = node.args[0]
        else:
            return False
    return (node.id if isinstance(node, ast.Name) else node.attr) in (name, f"{name}_mean")


def runs_code(path: Path) -> list[str]:
    """Ways to turn stored data into running code."""
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name in imported_modules(path)
        if name.split(".")[0] in forbidden
    ]
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec", "compile", "__import__"):
            found.append(f"{path.relative_to(ROOT)}:{node.lineno} calls {node.func.id}")
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) is not False:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} allows pickles")
    return found


def test_every_room_has_a_place():
    assert {room_of(p) for p in FILES} <= set(LEVEL)


@pytest.mark.parametrize("rule", [wrong_way, wrong_way_in_the_bank, runs_code, looks_into_the_compiler, moves_by_hand])
def test_house_rule(rule):
    assert [problem for path in FILES for problem in rule(path)] == []


def test_only_response_knows_formats():
    assert [problem for path in FILES if room_of(path) != "response" for problem in asks_format(path)] == []


@pytest.mark.parametrize(
    ("rule", "room", "source"),
    [
        (wrong_way, "data", "from concal.bank import store"),
        (wrong_way, "linking", "def f():\n    import concal.consensus.summary"),
        (wrong_way, "spec", "from concal.data.read import read_table"),
        (asks_format, "linking", "def f(model):\n    return model.name == '2pl'"),
        (asks_format, "linking", "def f(group):\n    return group.model in ('gpcm', 'grm')"),
        (asks_format, "linking", "def f(model):\n    return model.name != 'beta'"),
        (asks_format, "linking", "def f(m):\n    match m.name:\n        case 'grm':\n            return 1"),
        (asks_format, "linking", "def f(m):\n    return {'2pl': 1, '3pl': 2}[m.name]"),
        (asks_format, "linking", "def f(m):\n    return isinstance(m, (int, GPCM))"),
        (asks_format, "linking", "from concal.response.gpcm import GPCM"),
        (asks_format, "linking", "from concal.response import two_pl"),
        (looks_into_the_compiler, "calibration", "from concal.compiler import LANES"),
        (looks_into_the_compiler, "score", "import concal.compiler.vector"),
        (moves_by_hand, "score", "def f(A, m, B):\n    return A * m + B"),
        (moves_by_hand, "score", "def f(row, m):\n    return row['B_mean'] + m * row['A_mean']"),
        (moves_by_hand, "bank", "def f(link, k, t, np):\n    return (t - link.B[:, k]) / np.asarray(link.A)[:, k]"),
        (wrong_way_in_the_bank, "bank/tables", "from concal.bank.building.periods import Periods"),
        (wrong_way_in_the_bank, "bank/building", "import concal.bank.bank"),
        (runs_code, "data", "import pickle"),
        (runs_code, "data", "def f(x):\n    return eval(x)"),
        (runs_code, "data", "def f(np, p):\n    return np.load(p, allow_pickle=True)"),
    ],
)
def test_rules_catch_offenders(rule, room, source, tmp_path, monkeypatch):
    path = tmp_path / room / "module.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert rule(path)


def test_population_parameter_beta_is_not_a_format(tmp_path, monkeypatch):
    path = tmp_path / "consensus" / "module.py"
    path.parent.mkdir()
    path.write_text("def f(name):\n    return name == 'beta'")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert asks_format(path) == []


def test_a_public_name_is_never_also_a_room():
    """Importing a module binds its room's name in `concal`: a verb of the same name would be gone from then on."""
    rooms = {room_of(path) for path in FILES}
    assert rooms.isdisjoint(concal.__all__), f"both a room and a public name: {sorted(rooms & set(concal.__all__))}"


def test_where_to_look_names_what_is_there():
    """CONTRIBUTING: files and folders in backquotes exist; NAME stands for what is to be made."""
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [name for name in re.findall(r"`([\w./]+)`", text) if "/" in name and "NAME" not in name]
    files = {name for name in named if not any(start.joinpath(name).exists() for start in (ROOT, ROOT.parents[1]))}
    assert len(named) > 30
    assert files - {".ci/run"} == set()


def test_where_to_look_names_what_is_in_the_files():
    """`WORD` (in a row that names a file): the words in capitals or classes stand in one of the row's files."""
    rows = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    for row in (line for line in rows if line.startswith("| ")):
        files = [ROOT / name for name in re.findall(r"`([\w/]+\.py)`", row)]
        content = "".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
        for word in re.findall(r"`([A-Z]\w+)`", row):
            assert word in content, row


def test_an_export_format_has_its_function():
    assert set(CONTENT) == set(Format)


def test_the_spec_knows_the_link_methods():
    assert set(get_args(LinkingSpec.model_fields["method"].annotation)) == {*CURVE_METHODS, *MOMENT_METHODS}
