"""The commands that make, change and look at a bank."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from concal.bank.store.store import Store
from concal.cli import main
from concal.spec import Spec

from .places import Place, overwrite
from .programme import SPEC, fake_calibrator, items_table, responses_table


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    SPEC.write(folder / "bank.toml")
    items_table(20).write_csv(folder / "items.csv")
    for k, period in enumerate(("Q1", "Q2")):
        table = responses_table(period, 2 * k)
        table.write_csv(folder / f"{period}.csv")
        table.pivot("item_id", index="person_id", values="score").write_csv(folder / f"{period}-wide.csv")
    pl.DataFrame({"item_id": ["new"], "group": ["vocabulary"], "length": [2.0]}).write_csv(folder / "new.csv")
    return folder


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concal.bank.jobs.calibrating.calibrate_period", fake_calibrator)


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(w) for w in words])
    code = stop.value.code
    return 0 if code is None else int(code)


def data(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    capsys.readouterr()
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_check_asks_what_add_asks(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = tmp_path / "bank"
    assert run("init", bank, "--spec", files / "bank.toml") == 0
    assert run("add", bank, "Q1", files / "Q1.csv", "--items", files / "items.csv") == 0
    known = pl.read_csv(files / "Q1.csv").filter(pl.col("person_id") == "Q1-000")
    returning = pl.concat([pl.read_csv(files / "Q2.csv"), known])
    returning.write_csv(tmp_path / "returning.csv")
    result = data(capsys, "check", bank, "Q2", tmp_path / "returning.csv", "--items", files / "items.csv")
    assert result["returning"] == 1
    assert result["responses"] == 720
    assert {r["chain"] for r in result["linkage"] if r["period"] == "Q2"} == {"Q2 > Q1"}
    changed = SPEC.model_dump(exclude_none=True)
    changed["bank"]["dimensions"] = ["writing", "reading"]
    Spec.parse(changed).write(tmp_path / "changed.toml")
    for name, options in (("sharded", {"shards": 150}), ("guided", {"prior": "bank"})):
        Spec.parse({**SPEC.model_dump(exclude_none=True), "calibration": options}).write(tmp_path / f"{name}.toml")
    said_of_file = "150 shards would be too small"
    assert run("check", tmp_path / "sharded.toml", "Q2", files / "Q2.csv", "--items", files / "items.csv") == 1
    assert said_of_file in capsys.readouterr().err
    for words, message in (
        (("Q1", files / "Q1.csv"), "is in the bank already"),
        (("Q3", files / "Q2.csv", "--replace"), "nothing to replace"),
        (("Q2", files / "Q2.csv", "--spec", tmp_path / "changed.toml"), "bank.dimensions changes"),
        (("q1", files / "Q2.csv"), "only by case"),
        (("Q2", files / "Q2.csv", "--shards", 150), "150 shards would be too small"),
        (("Q2", files / "Q2.csv", "--spec", tmp_path / "sharded.toml"), "use 1 shard at most"),
        (("Q2", files / "Q2.csv", "--shards", 2, "--spec", tmp_path / "guided.toml"), "cannot be dealt to shards"),
    ):
        said = []
        for command in ("check", "add"):
            assert run(command, bank, *words, "--items", files / "items.csv") == 1
            said.append(capsys.readouterr().err.split("error: ")[1])
        assert message in said[0]
        assert said[0] == said[1]
    assert len(data(capsys, "history", bank)) == 2


def test_life_of_a_bank(files: Path, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = place / "bank"
    assert run("init", bank, "--spec", files / "bank.toml") == 0
    done = data(capsys, "add", bank, "Q1", files / "Q1.csv", "--items", files / "items.csv", "--reason", "start")
    assert (done["version"], done["items"]) == (1, 40)
    assert run("add", bank, "Q2", files / "Q2-wide.csv", "--items", files / "items.csv", "--wide") == 0
    out = capsys.readouterr().out
    assert "version 2: add Q2; 40 items on the metric of Q1" in out
    assert "reading: " in out
    assert run("add", bank, "Q2", files / "Q2.csv", "--items", files / "items.csv") == 1
    assert "in the bank already" in capsys.readouterr().err
    assert (
        data(capsys, "add", bank, "Q2", files / "Q2.csv", "--items", files / "items.csv", "--replace")["version"] == 3
    )
    assert {row["period"] for row in data(capsys, "periods", bank)} == {"Q1", "Q2"}
    assert [row["item_id"] for row in data(capsys, "items", bank, "v03", "e01")] == ["v03", "e01"]
    assert len(data(capsys, "items", bank, "v03", "e01", "--long")) == 6
    assert data(capsys, "items", bank, "v03")[0]["a"] > 0
    assert run("items", bank, "nope") == 1
    assert len(data(capsys, "links", bank)) == 4
    assert "kept" in data(capsys, "links", bank, "--period", "Q2")[0]
    assert isinstance(data(capsys, "drift", bank, "--all"), list)
    assert [row["action"] for row in data(capsys, "history", bank)] == ["create", "add Q1", "add Q2", "replace Q2"]
    assert data(capsys, "predict", bank, files / "new.csv")[0]["source"] == "predicted"
    assert data(capsys, "release", bank, "fall")["snapshot"] == 3
    assert data(capsys, "rereference", bank, "Q2")["reference"] == "Q2"
    assert data(capsys, "combine", bank, "--half-life", "2")["version"] == 5
    assert data(capsys, "retract", bank, "Q1")["version"] == 6
    assert data(capsys, "show", bank)["periods"] == ["Q2"]
    assert data(capsys, "show", bank, "--at", "fall")["periods"] == ["Q1", "Q2"]
    assert data(capsys, "show", bank, "--at", "1")["periods"] == ["Q1"]
    assert data(capsys, "export", bank, "--at", "fall", "--to", tmp_path / "items.csv")["items"] == 40
    assert run("export", bank, "--to", tmp_path / "x.docx") == 1
    assert run("items", bank, "--to", tmp_path / "items.parquet") == 0
    assert pl.read_parquet(tmp_path / "items.parquet").height > 0
    assert data(capsys, "verify", bank)["ok"] is True
    assert data(capsys, "prune", bank, "--keep", "1", "--grace-days", "0")["versions"] == [0, 1, 2, 4, 5]
    assert run("show", bank) == 0


def test_backfill_stops_at_a_period_that_has_not_converged(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(*given: Any, **options: Any) -> Any:
        found = fake_calibrator(*given, **options)
        return replace(found, convergence=replace(found.convergence, converged=options["period"] == "Q1"))

    monkeypatch.setattr("concal.bank.jobs.calibrating.calibrate_period", cut_short)
    bank, manifest = tmp_path / "bank", files / "backlog.csv"
    manifest.write_text("period,responses,items\nQ1,Q1.csv,items.csv\nQ2,Q2.csv,items.csv\n")
    assert run("init", bank, "--spec", files / "bank.toml") == 0
    assert run("backfill", bank, manifest) == 1
    assert "'Q2' has not converged" in capsys.readouterr().err
    assert data(capsys, "show", bank)["periods"] == ["Q1"]
    assert [update["version"] for update in data(capsys, "backfill", bank, manifest, "--accept-unconverged")] == [2]


def test_draws_and_legacy_parameters(
    files: Path, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank, other = place / "bank", place / "other"
    content = SPEC.model_dump(mode="json", exclude_none=True)
    content["calibration"] |= {"max_item_rhat": 1.01, "item_share": 1.0}
    Spec.parse(content).write(tmp_path / "strict.toml")
    assert run("init", bank, "--spec", files / "bank.toml") == 0
    assert run("init", other, "--spec", tmp_path / "strict.toml") == 0
    assert run("add", bank, "Q1", files / "Q1.csv", "--items", files / "items.csv") == 0
    assert run("export", bank, "--to", tmp_path / "Q1.nc", "--period", "Q1") == 0
    words = ("add", other, "Q1", "--draws", tmp_path / "Q1.nc", "--items", files / "items.csv")
    assert run(*words) == 1  # a hundred draws
    assert "has not converged" in capsys.readouterr().err
    assert data(capsys, *words, "--accept-unconverged")["version"] == 1
    rng = np.random.default_rng(0)
    ids = [f"v{k:02d}" for k in range(16)]
    old = {"a": np.exp(rng.normal(0, 0.2, 16)), "d": rng.normal(0, 1, 16), "se_a": [0.1] * 16, "se_d": [0.1] * 16}
    table = pl.DataFrame({"item_id": ids, "group": ["vocabulary"] * 16, "length": [1.0, 2.0] * 8, **old})
    table.write_csv(tmp_path / "old.csv")
    assert run("add", other, "old", "--legacy", tmp_path / "old.csv") == 1
    assert "dimensions" in capsys.readouterr().err


def test_bad_usage(files: Path, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("add", place / "none", "Q1", files / "Q1.csv", "--items", files / "items.csv") == 1
    assert "not a bank" in capsys.readouterr().err
    bank = place / "bank"
    assert run("init", bank, "--spec", files / "bank.toml") == 0
    assert run("init", bank, "--spec", files / "bank.toml") == 1
    assert run("add", bank, "Q1") == 2
    assert run("add", bank, "Q1", files / "Q1.csv") == 2
    assert run("add", bank, "../x", files / "Q1.csv", "--items", files / "items.csv") == 1
    assert run("show", bank, "--at", "nothing") == 1
    assert run("combine", bank, "--method", "joint") == 1
    assert "Traceback" not in capsys.readouterr().err


def test_damage_makes_verify_fail(files: Path, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    bank = place / "bank"
    run("init", bank, "--spec", files / "bank.toml")
    run("add", bank, "Q1", files / "Q1.csv", "--items", files / "items.csv")
    store = Store.open(bank)
    name = store.head().periods["Q1"].files["draws"].path
    bad = bytearray(store.objects.read(name))
    bad[100] ^= 1
    overwrite(store, name, bytes(bad))
    capsys.readouterr()
    assert run("verify", bank) == 1
    assert "draws.parquet is damaged" in capsys.readouterr().err
