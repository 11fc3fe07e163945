"""The simulator does what it says, and its truth is the truth."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

import concal
from concal.data.check import check_period
from concal.errors import DataError, SpecError
from concal.simulate import Plan, demo_spec
from concal.simulate.select import Experience, choose_adaptively, choose_tests
from concal.spec import Spec

SMALL = {"periods": 3, "items": 150, "examinees": 400, "responses_per_examinee": 20}


@pytest.fixture(scope="module")
def programme():
    return concal.simulate_programme(**SMALL, seed=5, drift_share=0.2, drift_size=0.7, overlap=0.25)


def same(one, two):
    return all(one.responses[p].equals(two.responses[p]) for p in one.responses) and one.items.equals(two.items)


@pytest.mark.parametrize("selection", ["random", "popularity", "adaptive", "adaptive_within"])
def test_a_seed_determines_everything(selection):
    one, two, other = (
        concal.simulate_programme(**SMALL, selection=selection, overlap=0.1, seed=seed) for seed in (1, 1, 2)
    )
    assert same(one, two)
    assert one.truth.items.equals(two.truth.items)
    assert one.truth.abilities.equals(two.truth.abilities)
    assert not same(one, other)


def test_one_option_leaves_the_rest_alone():
    """The items and abilities of a seed are the same whatever the selection."""
    one, two = (concal.simulate_programme(**SMALL, selection=s) for s in ("random", "adaptive"))
    assert one.truth.items.equals(two.truth.items)
    assert one.truth.abilities.equals(two.truth.abilities)


@pytest.mark.parametrize("selection", ["random", "popularity", "adaptive", "adaptive_within"])
def test_shape_and_legal_scores(selection):
    programme = concal.simulate_programme(**SMALL, selection=selection, exposure_spread=2.5)
    group = dict(programme.items.select("item_id", "group").iter_rows())
    for period, frame in programme.responses.items():
        assert frame.height == SMALL["examinees"] * SMALL["responses_per_examinee"]
        assert frame.select("person_id", "item_id").is_duplicated().sum() == 0
        in_use = set(programme.truth.items.filter(period=period)["item_id"])
        assert set(frame["item_id"]) <= in_use
        scores = frame.with_columns(group=pl.col("item_id").replace_strict(group))
        for name, spec in programme.spec.groups.items():
            mine = scores.filter(group=name)["score"].to_numpy()
            assert mine.size > 0
            assert not spec.response_model.bad_scores(mine).any()


def test_the_checks_accept_it(programme):
    for period, frame in programme.responses.items():
        checked = concal.check_period(frame, programme.items, programme.spec, period=period)
        assert checked.data.n_responses == frame.height


def test_items_enter_and_retire(programme):
    periods = list(programme.responses)
    in_use = [set(programme.truth.items.filter(period=p)["item_id"]) for p in periods]
    plan = Plan(**SMALL)
    assert all(len(s) == plan.n_active for s in in_use)
    assert all(len(b - a) == plan.n_new == len(a - b) for a, b in pairwise(in_use))
    assert len(set().union(*in_use)) == SMALL["items"] == programme.items.height
    assert set(programme.items["group"]) == set(programme.spec.groups)


def test_new_items_have_few_responses_and_exposure_has_a_heavy_tail():
    programme = concal.simulate_programme(periods=2, items=400, examinees=2000, turnover=0.3)
    first, second = programme.responses.values()
    old = set(programme.truth.items.filter(period="2026Q1")["item_id"])
    counts = second.group_by("item_id").len()
    is_old = pl.col("item_id").is_in(list(old))
    assert counts.filter(~is_old)["len"].mean() < 0.35 * counts.filter(is_old)["len"].mean()
    exposure = first.group_by("item_id").len()["len"].sort().to_numpy()
    assert exposure[-exposure.size // 10 :].sum() > 0.25 * exposure.sum()
    even = concal.simulate_programme(periods=2, items=400, examinees=2000, selection="random").responses["2026Q1"]
    even_counts = even.group_by("item_id").len()["len"].to_numpy()
    assert even_counts.std() < 1.3 * np.sqrt(even_counts.mean())


def test_drift_is_where_the_truth_says(programme):
    drift = programme.truth.drift
    assert drift.height == 30
    assert set(drift["shift"]) == {-0.7, 0.7}
    d = programme.truth.items.filter(parameter="d").pivot(on="period", index="item_id", values="value")
    moved = {i: (p, s) for i, p, s in drift.iter_rows()}
    for row in d.iter_rows(named=True):
        seen = [(p, row[p]) for p in programme.responses if row[p] is not None]
        when, shift = moved.get(row["item_id"], ("9999", 0.0))
        base = seen[0][1]
        for period, value in seen:
            assert value == pytest.approx(base + (shift if period >= when else 0.0))
    other = programme.truth.items.filter(pl.col("parameter") != "d")
    assert other.group_by("item_id", "parameter").agg(pl.col("value").n_unique())["value"].max() == 1


@pytest.mark.parametrize(("direction", "sign"), [("easier", -1), ("harder", 1)])
def test_drift_goes_one_way(direction, sign):
    drift = concal.simulate_programme(**SMALL, drift_share=0.1, drift_direction=direction).truth.drift
    assert drift.height == 15
    assert (np.sign(drift["shift"].to_numpy()) == sign).all()


def test_overlap_brings_people_back_with_their_ability(programme):
    people = programme.truth.abilities
    one, two = (people.filter(period=p) for p in ("2026Q1", "2026Q2"))
    back = one.join(two, on="person_id")
    assert back.height == 100
    assert back["comprehension"].equals(back["comprehension_right"].rename("comprehension"))
    none = concal.simulate_programme(**SMALL).truth.abilities
    assert none["person_id"].n_unique() == none.height


def test_periods_differ_as_the_truth_says():
    truth = concal.simulate_programme(**{**SMALL, "examinees": 20000}, seed=3, ability_shift=0.5).truth
    for row in truth.periods.iter_rows(named=True):
        theta = truth.abilities.filter(period=row["period"])[row["dimension"]]
        assert theta.mean() == pytest.approx(row["mean"], abs=0.04)
        assert theta.std() == pytest.approx(row["sd"], rel=0.03)
    first = truth.abilities.filter(period="2026Q1")
    assert np.corrcoef(first["comprehension"], first["production"])[0, 1] == pytest.approx(0.6, abs=0.03)
    assert truth.periods.filter(period="2026Q1").select("mean", "sd").unique().row(0) == (0.0, 1.0)


def test_features_explain_the_items():
    """Regressing true xi on the features of the table gives back beta and Sigma."""
    programme = concal.simulate_programme(periods=1, items=30000, examinees=1, responses_per_examinee=1)
    items = programme.items.filter(group="vocabulary")
    truth = programme.truth
    xi = truth.items.filter(group="vocabulary").pivot(on="parameter", index="item_id", values="value")
    table = items.join(xi, on="item_id")
    levels = [(table["cefr"] == level).cast(pl.Float64) for level in ("A2", "B1", "B2", "C1")]
    X = np.column_stack([np.ones(table.height), table["log_frequency"], table["length"], *levels])
    beta = truth.population.filter(group="vocabulary").pivot(on="parameter", index="feature", values="value")
    assert beta["feature"].to_list() == [
        "1",
        "log_frequency",
        "length",
        *(f"C(cefr)[{x}]" for x in ("A2", "B1", "B2", "C1")),
    ]
    for parameter, scale in (("d", 0.12), ("log_a", 0.036)):
        fit, *_ = np.linalg.lstsq(X, table[parameter].to_numpy(), rcond=None)
        assert fit == pytest.approx(beta[parameter].to_numpy(), abs=scale)
    residual = np.column_stack([table[k].to_numpy() - X @ beta[k].to_numpy() for k in ("d", "log_a")])
    sigma = truth.covariance.filter(group="vocabulary").pivot(on="parameter", index="other", values="value")
    assert np.cov(residual.T) == pytest.approx(sigma.select("d", "log_a").to_numpy(), abs=0.03)


def test_responses_follow_the_truth():
    """In every group, score sums by true item match the model's expected scores within sampling error."""
    programme = concal.simulate_programme(periods=2, items=60, examinees=3000, drift_share=0.5, seed=9)
    frame = programme.responses["2026Q2"].join(programme.items.select("item_id", "group"), on="item_id")
    people = programme.truth.abilities.filter(period="2026Q2")
    for name, spec in programme.spec.groups.items():
        model = spec.response_model
        xi = programme.truth.items.filter(period="2026Q2", group=name).pivot(
            on="parameter", index="item_id", values="value"
        )
        full = frame.filter(group=name).join(xi, on="item_id").join(people, on="person_id")
        expected = model.expected_score(full[spec.dimension].to_numpy(), full.select(model.parameters).to_numpy())
        error = full["score"].to_numpy() / model.max_score - expected
        z = (
            full.with_columns(error=error)
            .group_by("item_id")
            .agg(pl.col("error").sum() / (pl.col("error").pow(2).sum().sqrt() + 1e-12))["error"]
        )
        assert z.std() == pytest.approx(1.0, abs=0.5)
        assert abs(z.mean()) < 1.2


def test_tests_by_weight_never_repeat_and_follow_the_weights():
    rng = np.random.default_rng(1)
    weights = np.array([0.0, 1.0, 1.0, 2.0, 1000.0, 4.0])
    tests = choose_tests(weights, 20000, 5, rng)
    assert (np.sort(tests, axis=1) == np.arange(1, 6)).all()  # all five possible items, each once
    after = tests[tests[:, 0] == 4][:, 1]
    assert np.bincount(after, minlength=6)[[1, 2, 3, 5]] / after.size == pytest.approx(
        np.array([1, 1, 2, 4]) / 8, abs=0.015
    )


def test_adaptive_choice_sees_scores_only():
    """Scores are scripted: half the examinees always right, half always wrong; items' difficulties are known."""
    n, length = 200, 12
    experience = Experience(np.full(300, 1e6), np.linspace(0.95, 0.05, 300) * 1e6, np.zeros(300))
    able = np.arange(n) % 2 == 0
    tests = choose_adaptively(
        np.ones(300),
        np.zeros(300, dtype=np.int64),
        (n, length, 1),
        lambda person, item: able[person].astype(float),
        experience,
        np.random.default_rng(4),
    )
    difficulty = experience.difficulty()[tests]
    assert difficulty[able, 6:].mean() > 1.0
    assert difficulty[~able, 6:].mean() < -1.0
    assert abs(difficulty[:, 0].mean()) < 0.5  # nobody is known yet


def test_adaptive_programme_matches_people_and_items():
    def fit(selection):
        programme = concal.simulate_programme(periods=2, items=300, examinees=1500, selection=selection, seed=2)
        d = programme.truth.items.filter(period="2026Q2", parameter="d", dimension="comprehension")
        full = programme.responses["2026Q2"].join(d, on="item_id")
        mean = (
            full.group_by("person_id")
            .agg(pl.col("value").mean())
            .join(programme.truth.abilities.filter(period="2026Q2"), on="person_id")
        )
        return np.corrcoef(mean["value"], mean["comprehension"])[0, 1]

    assert fit("adaptive") > 0.4
    assert fit("adaptive_within") > 0.4
    assert abs(fit("popularity")) < 0.1


def test_a_period_that_explains_its_own_choices_forgets_the_ones_before():
    one, two = (concal.simulate_programme(**SMALL, selection=s) for s in ("adaptive", "adaptive_within"))
    first, second = list(one.responses)[:2]
    assert one.responses[first].equals(two.responses[first])
    assert not one.responses[second].equals(two.responses[second])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_come_back(programme, tmp_path, kind):
    places = programme.write(tmp_path / "out", kind)
    assert concal.Spec.read(places["spec"]) == programme.spec
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet}[kind]
    assert read(places["2026Q2"]).equals(programme.responses["2026Q2"])
    assert read(places["items"]).equals(programme.items)
    assert read(places["truth"] / f"items.{kind}").equals(programme.truth.items)
    assert sorted(p.stem for p in places["truth"].iterdir()) == [
        "abilities",
        "correlations",
        "covariance",
        "drift",
        "items",
        "periods",
        "population",
    ]
    with pytest.raises(DataError, match="not empty"):
        programme.write(tmp_path / "out", kind)
    programme.write(tmp_path / "out", kind, overwrite=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"items": 20}, "bring more items"),
        ({"overlap": 1.5}, "overlap"),
        ({"turnover": float("nan")}, "turnover"),
        ({"selection": "true_theta"}, "adaptive"),
        ({"drift_direction": "up"}, "easier"),
        ({"examinees": 10.5}, "whole number"),
        ({"examinee": 10}, "unknown option"),
        ({"shares": {"vocabulary": 1.0}}, "shares"),
    ],
)
def test_impossible_wishes(options, message):
    with pytest.raises(SpecError, match=message):
        concal.simulate_programme(**options)


def test_a_formula_may_only_use_what_is_simulated():
    data = demo_spec().model_dump(mode="json", exclude_none=True)
    data["groups"]["summary"]["features"] = "~ colour"
    with pytest.raises(SpecError, match=r"groups\.summary\.features.*colour"):
        concal.simulate_programme(concal.Spec.parse(data))


def test_three_dimensions_and_every_model():
    groups = {
        "a": {"model": "2pl", "dimension": "x"},
        "b": {"model": "3pl", "dimension": "y"},
        "c": {"model": "grm", "categories": 5, "dimension": "z", "features": "~ cefr"},
        "d": {"model": "beta", "dimension": "x"},
        "e": {"model": "gpcm", "categories": 2, "dimension": "y"},
    }
    spec = concal.Spec.parse({"bank": {"dimensions": ["x", "y", "z"]}, "groups": groups})
    programme = concal.simulate_programme(spec, **SMALL, shares={"a": 4, "b": 2, "c": 2, "d": 1, "e": 1})
    counts = dict(programme.items.group_by("group").len().iter_rows())
    assert counts["a"] == pytest.approx(60, abs=3)
    assert programme.truth.correlations.height == 3
    with pytest.raises(SpecError, match="impossible"):
        concal.simulate_programme(spec, **SMALL, correlation=-0.6)


def run(*arguments):
    command = [sys.executable, "-c", "from concal.cli import main; main()", "simulate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command(tmp_path):
    small = ("--periods", 2, "--items", 80, "--examinees", 50, "--format", "parquet", "--selection", "adaptive")
    done = run(tmp_path / "p", *small, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [row["responses"] for row in told["periods"]] == [1500, 1500]
    assert pl.read_parquet(tmp_path / "p" / "responses-2026Q2.parquet").height == 1500
    again = run(tmp_path / "p", *small)
    assert again.returncode == 1
    assert "not empty" in again.stderr
    assert "Traceback" not in again.stderr
    assert run(tmp_path / "q", "--selection", "oracle").returncode == 2
    assert not (tmp_path / "q").exists()


def test_a_group_that_leaves_categories_to_its_items_gets_several_numbers():
    essay, word = {"model": "grm", "dimension": "x", "features": "~ length"}, {"model": "2pl", "dimension": "x"}
    groups = {"essay": essay, "word": word}
    spec = Spec.parse({"bank": {"dimensions": ["x"]}, "groups": groups})
    made = concal.simulate_programme(spec, periods=1, items=60, examinees=200, responses_per_examinee=20, seed=2)
    assert made.items["item_id"].n_unique() == 60
    assert made.items.group_by("group", "categories").len().sort("categories", nulls_last=True)["len"].to_list() == [
        10, 10, 10, 30,
    ]  # fmt: skip
    data = check_period(made.responses["2026Q1"], made.items, spec).data
    names = ["essay (2 categories)", "essay (3 categories)", "essay (5 categories)"]
    assert list(data.groups) == [*names, "word"]
    beta = made.truth.population.filter(pl.col("parameter").is_in(["d", "log_a"]))
    first, *others = (beta.filter(pl.col("group") == name)["value"].to_list() for name in names)
    assert all(other == first for other in others)


def test_groups_of_examinees_differ_as_asked():
    size = {"periods": 2, "items": 40, "examinees": 600, "responses_per_examinee": 10}
    made = concal.simulate_programme(**size, person_groups=3, group_shift=0.8, overlap=0.2, seed=4)
    people = made.truth.abilities.filter(pl.col("period") == "2026Q1")
    means = people.group_by("person_group").agg(pl.col("production").mean()).sort("person_group")
    assert means["person_group"].to_list() == ["A", "B", "C"]
    np.testing.assert_allclose(means["production"].diff()[1:], 0.8, atol=0.25)
    frames = pl.concat(made.responses.values()).select("person_id", "person_group").unique()
    assert frames["person_id"].is_unique().all()  # who comes back is in the same group
    assert "person_group" not in concal.simulate_programme(**size, seed=4).responses["2026Q1"].columns
