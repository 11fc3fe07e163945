"""The notebook in examples/ runs, cell by cell, and every result at the end of a cell can be displayed."""

import ast
import json
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "own_data.ipynb"


def cells() -> list[str]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") for cell in found["cells"]), "keep the notebook without outputs"
    return ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == "code"]


def test_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for source in cells():
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(NOTEBOOK), "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), space)
            assert value is None or repr(value)
            if hasattr(value, "to_dict") and "plot" in source:
                assert value.to_dict()["data"]
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert space["bank"].period_names == ("2026Q1", "2026Q2")
