"""jsCAT reads our export and picks the item our information picks; needs node and a folder with @bdelab/jscat."""

import json
import os
import shutil
import subprocess

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.spec import Spec

from ..bank.programme import SPEC, fake_calibrator, items_table, responses_table

SCRIPT = """
const fs = require("fs");
const { Cat } = require("@bdelab/jscat");
const items = JSON.parse(fs.readFileSync(process.argv[1], "utf8"));
const picked = [-1, 0, 1].map((theta) => {
  const cat = new Cat({ method: "eap", itemSelect: "MFI", theta, minTheta: -6, maxTheta: 6 });
  return cat.findNextItem(items.map((item) => ({ ...item }))).nextStimulus.id;
});
const cat = new Cat({ method: "eap", minTheta: -6, maxTheta: 6 });
cat.updateAbilityEstimate(items.slice(0, 6), [1, 0, 1, 1, 0, 1]);
console.log(JSON.stringify({ picked, theta: cat.theta }));
"""


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    spec = Spec.parse(SPEC.model_dump(exclude_none=True))
    made = Bank.create(tmp_path_factory.mktemp("jscat") / "bank", spec)
    made.add("P1", responses_table("P1"), items_table(), calibrator=fake_calibrator)
    return made


def test_columns(bank, tmp_path):
    done = bank.export(tmp_path / "items.json", format="jscat")
    items = json.loads((tmp_path / "items.json").read_text())
    assert set(items[0]) == {"id", "a", "b", "c", "d"}
    assert done.items == len(items) == 16
    assert len(done.left_out) == 16  # jsCAT has no partial credit
    known = bank.parameters().filter(pl.col("item_id") == items[0]["id"]).row(0, named=True)
    assert items[0]["a"] == pytest.approx(known["a"])
    assert items[0]["b"] == pytest.approx(known["d"])


@pytest.mark.skipif(
    shutil.which("node") is None or "CONCAL_JSCAT" not in os.environ,
    reason="needs node and CONCAL_JSCAT, a folder with node_modules/@bdelab/jscat",
)
def test_jscat_reads_it(bank, tmp_path):
    path = tmp_path / "items.json"
    bank.export(path, format="jscat")
    items = json.loads(path.read_text())
    folder = os.environ["CONCAL_JSCAT"]
    done = subprocess.run(["node", "-e", SCRIPT, str(path)], cwd=folder, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    for theta, picked in zip((-1.0, 0.0, 1.0), found["picked"], strict=True):
        table = bank.information([i["id"] for i in items], theta=[theta], draws=2).items
        eta = [i["a"] * (theta - i["b"]) for i in items]
        fisher = [i["a"] ** 2 * np.exp(e) / (1 + np.exp(e)) ** 2 for i, e in zip(items, eta, strict=True)]
        assert picked == items[int(np.argmax(fisher))]["id"]
        assert picked in table["item_id"].to_list()
    nodes = np.linspace(-6, 6, 2001)
    ll = sum(
        np.log(1 / (1 + np.exp(-(1 if y else -1) * i["a"] * (nodes - i["b"]))))
        for i, y in zip(items, (1, 0, 1, 1, 0, 1), strict=False)
    )
    w = np.exp(ll - 0.5 * nodes**2)
    assert found["theta"] == pytest.approx((w * nodes).sum() / w.sum(), abs=0.02)
