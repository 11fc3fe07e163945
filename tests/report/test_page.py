"""The page is one file, shows the bank's numbers, and treats ids as text."""

import errno
import re
import shutil

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reported_bank import HTML_ID, HTML_NAME, PERIODS
from unpacked import frame, read_page, unpack

from concal.bank.bank import Bank
from concal.bank.store.files import sha256
from concal.bank.store.manifest import FORMAT, Release
from concal.bank.store.store import Store
from concal.bank.store.transaction import add_release
from concal.errors import BankError, ConcalError, DataError
from concal.evaluate.targeting import information_curves
from concal.report import write
from concal.report.pack import Block, script_json
from concal.report.page import write_report
from concal.report.printed import cell, p_value, printed
from concal.report.sections import SECTIONS
from concal.report.view import View


@pytest.fixture(scope="module")
def packed(reported):
    return read_page(reported[2])


def test_nothing_comes_from_outside(reported):
    text = re.sub(r'(?s)<script type="application/.*?</script>', "", reported[2])
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", text)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", text)
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}


def test_all_sections_are_there(reported):
    for module in SECTIONS:
        made = module.section(reported[1], Block(reported[1].item_ids))
        assert f'<section id="{made.key}">' in reported[2]
        assert made.title in reported[2]


def test_ids_and_names_are_text(reported):
    assert HTML_ID not in reported[2]
    assert HTML_NAME not in reported[2]
    assert "English &lt;b&gt;test&lt;/b&gt;" in reported[2]
    assert "a doubt &lt;i&gt;" in reported[2]
    assert reported[2].count("</script>") == 3


def test_items_are_the_banks(reported, packed):
    bank, (content, block) = reported[0], packed
    ids = unpack(block, content["ids"])
    table = bank.items()
    assert ids == table["item_id"].unique(maintain_order=True).to_list()
    at = 0
    for group in content["sections"]["items"]["groups"]:
        own = table.filter(pl.col("group") == group["name"])
        shape = (group["n"], len(group["parameters"]))
        assert own.height == shape[0] * shape[1]
        np.testing.assert_allclose(unpack(block, group["mean"]), own["mean"].to_numpy(), atol=1e-5)
        np.testing.assert_allclose(unpack(block, group["sd"]), own["sd"].to_numpy(), atol=1e-5)
        first = own.unique("item_id", maintain_order=True)
        assert unpack(block, group["n_responses"]).tolist() == first["n_responses"].to_list()
        assert [content["sections"]["items"]["sources"][k] for k in unpack(block, group["source"])] == first[
            "source"
        ].to_list()
        at += group["n"]
    assert at == len(ids)


def test_period_posteriors_are_the_banks(reported, packed):
    bank, (content, block) = reported[0], packed
    factors = bank.factors(PERIODS[1]).groups["essay"]
    link = bank.links().filter(period=PERIODS[1], dimension="writing").row(0, named=True)
    group = next(g for g in content["sections"]["items"]["groups"] if g["name"] == "essay")
    own = group["panels"]["posteriors"]["periods"][PERIODS[1]]
    ids = unpack(block, content["ids"])
    offset = ids.index(next(i for i in ids if i.startswith("essay")))
    places = group["seen"][PERIODS[1]]
    shown = [ids[offset + k] for k in unpack(block, places["item"])]
    seen = [j for j in range(factors.n_items) if factors.n_responses[j]]
    assert shown == [factors.item_ids[j] for j in seen]
    mean, sd = (unpack(block, own[key]).reshape(len(seen), -1) for key in ("mean", "sd"))
    np.testing.assert_allclose(mean[:, 0], link["A"] * factors.mean[seen, 0] + link["B"], atol=6e-4)
    np.testing.assert_allclose(mean[:, 1], factors.mean[seen, 1] - np.log(link["A"]), atol=6e-4)
    np.testing.assert_allclose(sd[:, 0], link["A"] * np.sqrt(factors.covariance[seen, 0, 0]), atol=6e-4)
    assert unpack(block, places["n"]).tolist() == factors.n_responses[seen].tolist()


def test_observed_scores_are_the_response_tables(reported, packed):
    bank, (content, block) = reported[0], packed
    period = PERIODS[2]
    factors = bank.factors(period).groups["dictation"]
    link = bank.links().filter(period=period, dimension="reading").row(0, named=True)
    own = next(g for g in content["sections"]["items"]["groups"] if g["name"] == "dictation")["panels"]["curves"][
        "periods"
    ][period]
    theta, score = (unpack(block, own[key], own["bins"]).reshape(-1, own["bins"]) for key in ("bin_theta", "bin_score"))
    theta = content["theta"][0] + theta * (content["theta"][-1] - content["theta"][0])
    data = bank.period_data(period).groups["dictation"]
    seen = np.flatnonzero(factors.n_responses > 0)
    expected = np.clip(link["A"] * factors.bin_mean[seen] + link["B"], -4, 4)
    for k, j in enumerate(seen):
        answers = data.score[data.item == data.item_ids.index(factors.item_ids[j])]
        used = min(own["bins"], answers.size)
        np.testing.assert_allclose(theta[k, :used], expected[k, :used], atol=0.041)
        counts = factors.cell_count[j].sum(axis=1)[:used]
        assert (score[k, :used] @ counts) / answers.size == pytest.approx(answers.mean(), abs=0.02)


def test_periods_without_response_tables_have_no_points(packed):
    content, _ = packed
    assert all(
        "bins" not in g["panels"]["curves"]["periods"][PERIODS[1]] for g in content["sections"]["items"]["groups"]
    )


def test_information_is_the_items(reported, packed):
    """Every item's packed curve against the model's, and the bank's as the sum of its items."""
    content, block = packed
    view = reported[1]
    for group in content["sections"]["items"]["groups"]:
        own, known = group["panels"]["information"], view.consensus.groups[group["name"]]
        exact, spread = information_curves(known.model, known.mean, known.covariance, np.array(own["theta"]))
        largest = np.exp(own["least"] + own["step"] * unpack(block, own["largest"]).astype(float))
        np.testing.assert_allclose(largest, exact.max(axis=1), rtol=own["step"])
        curve = unpack(block, own["curve"], len(own["theta"])) * exact.max(axis=1, keepdims=True)
        assert (np.abs(curve - exact) <= exact.max(axis=1, keepdims=True) / 40).all()
        peak = spread[np.arange(len(spread)), exact.argmax(axis=1)]
        np.testing.assert_allclose(unpack(block, own["sd"]) * own["step"], peak, atol=own["step"])
    table = frame(block, content["sections"]["information"]["curves"], list(view.item_ids))
    here = [k for k, d in enumerate(table["dimension"]) if d == "writing"]
    total = sum(
        view.information[n][0].sum(axis=0) for n, g in view.consensus.groups.items() if g.dimension == "writing"
    )
    np.testing.assert_allclose([table["information"][k] for k in here], total, rtol=1e-5)
    located = frame(block, content["sections"]["information"]["locations"], list(view.item_ids))
    assert sum(located["count"]) == len(view.item_ids)


def test_curves_are_the_models(reported, packed):
    view, (content, block) = reported[1], packed
    group = view.consensus.groups["dictation"]
    groups = content["sections"]["items"]["groups"]
    own = next(g for g in groups if g["name"] == "dictation")["panels"]["curves"]
    nodes = len(content["theta"])
    curve = unpack(block, own["curve"], nodes).reshape(-1, nodes)
    spread = (unpack(block, own["spread"]).reshape(-1, nodes) * own["step"]) ** 2
    expected = group.model.expected_score(np.array(content["theta"]), group.mean[:, None, :])
    np.testing.assert_allclose(curve, expected, atol=0.004)
    assert (spread >= 0).all()
    assert (spread.max(axis=1) > 0).all()


def test_bands_are_quantiles_over_draws(reported):
    """The slow way: curves of many draws of xi, their 5 % and 95 % points."""
    from concal.evaluate.digest import score_curves

    theta = np.linspace(-2, 2, 5)
    for group in reported[1].consensus.groups.values():
        mean, covariance = group.mean[:8], group.covariance[:8] / 4
        curve, spread = score_curves(group.model, mean, covariance, theta)
        logit = np.log(curve / (1 - curve))
        rng = np.random.default_rng(1)
        for j in range(8):
            xi = rng.multivariate_normal(mean[j], covariance[j], 4000)
            slow = np.quantile(group.model.expected_score(theta, xi[:, None, :]), [0.05, 0.95], axis=0)
            for sign, edge in zip((-1, 1), slow, strict=True):
                np.testing.assert_allclose(1 / (1 + np.exp(-logit[j] - sign * 1.645 * spread[j])), edge, atol=0.02)


def test_tables_are_the_banks(reported):
    bank, _, text = reported
    for row in bank.links().iter_rows(named=True):
        assert f">{cell(row['A'])}<" in text
    assert printed(bank.links()).rows == tuple(
        tuple(cell(v, 1 if name == "effective_anchors" else 3) for name, v in row.items())
        for row in bank.links().iter_rows(named=True)
    )
    kept = bank.evaluation()
    shown = kept.overall.filter(pl.col("parameter") == "d")["mean_rmse"].item()
    assert f">{shown:.3f}<" in text


def test_p_values_are_never_zero():
    table = pl.DataFrame({"item_q_value": [1e-12, 0.5, None], "p_value": [0.0004, 1.0, 0.02]})
    assert printed(table).rows == (("< .001", "< .001"), (".500", "1.000"), ("–", ".020"))
    assert p_value(float("nan")) == "–"


def test_agreement_pairs_are_the_evaluations(reported, packed):
    bank, (content, block) = reported[0], packed
    kept = bank.evaluation()
    ids = unpack(block, content["ids"])
    for part in content["sections"]["agreement"]["pairs"]:
        own = frame(block, part["frame"], ids)
        pairs = kept.pairs.filter("kept", dimension=part["dimension"], model=part["model"], parameter=part["parameter"])
        assert own["item_id"] == pairs["item_id"].to_list()
        assert own["tertile"] == pairs["tertile"].to_list()
        for ours, theirs in (("mean analytic", "mean"), ("pooled_sd", "pooled_sd")):
            np.testing.assert_allclose(own[ours], pairs[theirs].to_numpy(), atol=6e-4)


def test_problems_come_first(reported):
    levels = [notice.level for notice in reported[1].notices]
    assert levels[0] == "problem"
    assert levels == sorted(levels, reverse=True)


def test_bank_without_evaluation_says_so(reported):
    bank = reported[0]
    before = View(bank.at(bank.version - 1))
    assert before.evaluation is None
    assert any(n.section == "agreement" for n in before.notices)


def test_file_is_written_whole(reported, tmp_path):
    path = write_report(reported[0], tmp_path / "r.html")
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    with pytest.raises(DataError, match="there is no folder"):
        write_report(reported[0], tmp_path / "nowhere" / "r.html")


def test_full_disk_is_said_and_leaves_nothing(reported, tmp_path, monkeypatch):
    def full(path, data):
        path.write_bytes(data[:1000])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    (tmp_path / "r.html").write_text("the report of last quarter")
    monkeypatch.setattr(write, "write_durably", full)
    with pytest.raises(ConcalError, match="the disk is full"):
        write_report(reported[0], tmp_path / "r.html")
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    assert (tmp_path / "r.html").read_text() == "the report of last quarter"


def test_changes_are_not_counted_from_a_version_without_periods(reported, tmp_path):
    copied = tmp_path / "bank"
    shutil.copytree(reported[0].path, copied)
    first = Store.open(copied)
    made = Release(
        format=FORMAT,
        name="too-early",
        snapshot=0,
        sha256=sha256(first.read_bytes_of_snapshot(0)),
        written="2026-01-01T00:00:00+00:00",
        author="ada",
        note="",
    )
    add_release(first, made)
    words, version = View(Bank(copied)).base
    assert words == View(reported[0]).base[0]
    assert version.period_names
    for since in (0, "too-early"):
        with pytest.raises(BankError, match="has no period, so no item of it can have changed; name a later one"):
            _ = View(Bank(copied), since=since).base


def test_empty_bank_is_refused(tmp_path):
    from reported_bank import SPEC

    with pytest.raises(BankError, match="no period yet"):
        View(Bank.create(tmp_path / "empty", SPEC))


@pytest.mark.property
@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6) | st.just(float("nan"))))
def test_rounded_numbers_come_back(values):
    block = Block()
    ref = block.rounded(values)
    import base64
    import gzip

    back = unpack(gzip.decompress(base64.b64decode(block.encoded())), ref)
    np.testing.assert_allclose(back, values, atol=5.1e-4, rtol=1e-6)


@pytest.mark.property
@given(st.text())
def test_no_text_ends_the_script(text):
    import json

    packed = script_json({"id": text})
    assert "<" not in packed
    assert json.loads(packed) == {"id": text}
