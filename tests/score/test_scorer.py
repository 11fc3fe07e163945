"""One examinee at a time: the same numbers as a table, from many threads, over HTTP."""

import importlib.util
import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from worlds import MODELS, make_bank, people, simulate

from concal.errors import DataError
from concal.score.score import ScoreOptions, score_examinees
from concal.score.scorer import Scorer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "score_server.py"


@pytest.fixture(scope="module")
def world():
    bank = make_bank(MODELS, dimensions=2, sd=0.2, reporting={"dim0": {"slope": 10, "intercept": 50}})
    _, answered = simulate(bank, 60, 3)
    return bank, answered


def responses_of(bank, answered, p):
    a, b = answered.start[p], answered.start[p + 1]
    return {bank.items.item_ids[j]: float(y) for j, y in zip(answered.item[a:b], answered.score[a:b], strict=True)}


@pytest.mark.parametrize("level", ["mean", "soft"])
def test_same_as_a_table(world, level):
    bank, answered = world
    scorer = Scorer(bank, items=level)
    table = score_examinees(bank, people(answered), ScoreOptions(items=level))
    for p in range(20):
        found = scorer.score(responses_of(bank, answered, p))
        assert found.theta["dim1"] == pytest.approx(table["theta_dim1"][p], abs=1e-6)
        assert found.se["dim0"] == pytest.approx(table["se_dim0"][p], abs=1e-6)
        assert found.reported["dim0"] == pytest.approx(table["score_dim0"][p], abs=1e-4)
        assert sum(found.n.values()) == table["n_responses"][p]


def test_many_threads(world):
    bank, answered = world
    scorer = Scorer(bank)
    asked = [responses_of(bank, answered, p % 60) for p in range(600)]
    alone = [scorer.score(r).theta for r in asked[:60]]
    with ThreadPoolExecutor(8) as pool:
        together = [found.theta for found in pool.map(scorer.score, asked)]
    assert together == alone * 10


def test_odd_requests(world):
    bank, _ = world
    scorer = Scorer(bank)
    nothing = scorer.score({})
    assert nothing.theta["dim0"] == pytest.approx(0.0, abs=1e-9)
    assert nothing.n == {"dim0": 0, "dim1": 0}
    with pytest.raises(DataError, match="1 item the bank does not know: 'zz'"):
        scorer.score({"zz": 1})
    assert scorer.score({"zz": 1}, unknown="ignore").unknown == ("zz",)
    with pytest.raises(DataError, match="must be 0 or 1: 7 on 'g0-00'"):
        scorer.score({"g0-00": 7})
    with pytest.raises(DataError, match='"mean" or "soft"'):
        Scorer(bank, items="draws")


def test_over_http(world):
    bank, answered = world
    spec = importlib.util.spec_from_file_location("score_server", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    scorer = Scorer(bank)
    server = example.make_server(scorer, "fall", port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/score"

    def post(body):
        with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
            return json.loads(answer.read())

    try:
        asked = responses_of(bank, answered, 3)
        found = post(json.dumps({"responses": asked}).encode())
        assert found["release"] == "fall"
        assert found["theta"] == pytest.approx(scorer.score(asked).theta)
        for bad in (b"{", b'{"responses": {"zz": 1}}', b'{"responses": 3}'):
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(bad)
            assert refused.value.code == 400
            assert "error" in json.loads(refused.value.read())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert np.isfinite(list(found["se"].values())).all()
