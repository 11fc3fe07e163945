"""Scores from a bank on disk: every version its own, files whole, odd tables."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from concal.bank.bank import Bank
from concal.bank.exchange.scores import ScoreRequest, score_file
from concal.bank.scoring import as_calibrated
from concal.cli import app
from concal.errors import ConcalError, DataError, DataWarning
from concal.score.prior import Prior
from concal.score.score import ScoreOptions
from concal.spec import Spec

from ..bank.programme import SPEC, fake_calibrator, items_table, responses_table

REPORTING = {
    "reading": {"slope": 20, "intercept": 100, "min": 10, "max": 160, "round": 5},
    "overall": {"weights": {"reading": 0.5, "writing": 0.5}, "slope": 10, "intercept": 50},
}


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    spec = Spec.parse({**SPEC.model_dump(exclude_none=True), "reporting": REPORTING})
    made = Bank.create(tmp_path_factory.mktemp("scores") / "bank", spec)
    made.add("P1", responses_table("P1"), items_table(), calibrator=fake_calibrator)
    made.add("P2", responses_table("P2", first=4), items_table(), calibrator=fake_calibrator)
    made.release("spring")
    return made


@pytest.fixture
def responses():
    return responses_table("new", n=6, persons=40, seed=9)


def test_columns(bank, responses):
    table = bank.score(responses)
    assert table.columns == [
        "person_id", "n_responses", "prior", "items",
        "theta_reading", "se_reading", "se_measurement_reading", "se_items_reading", "se_link_reading", "n_reading",
        "flag_reading",
        "theta_writing", "se_writing", "se_measurement_writing", "se_items_writing", "se_link_writing", "n_writing",
        "flag_writing",
        "correlation_reading_writing", "score_reading", "se_score_reading", "score_overall", "se_score_overall",
    ]  # fmt: skip
    assert table["person_id"].is_sorted()
    assert table["n_responses"].unique().to_list() == [12]


def test_reported_scores(bank, responses):
    table = bank.score(responses, items="mean")
    theta = table["theta_reading"].to_numpy()
    np.testing.assert_allclose(table["score_reading"], np.clip(5 * np.floor((20 * theta + 100) / 5 + 0.5), 10, 160))
    np.testing.assert_allclose(table["se_score_reading"], 20 * table["se_reading"].to_numpy())
    np.testing.assert_allclose(table["score_overall"], 50 + 5 * (theta + table["theta_writing"].to_numpy()), rtol=1e-12)
    a, b, r = (table[c].to_numpy() for c in ("se_reading", "se_writing", "correlation_reading_writing"))
    np.testing.assert_allclose(table["se_score_overall"], 5 * np.sqrt(a**2 + b**2 + 2 * r * a * b))


def test_a_release_keeps_its_scores(bank, responses, tmp_path):
    before = bank.at("spring").score(responses, items="draws", draws=10)
    bank.add("P3", responses_table("P3", first=2), items_table(), calibrator=fake_calibrator)
    assert bank.at("spring").score(responses, items="draws", draws=10).equals(before)
    assert not bank.score(responses, items="draws", draws=10).equals(before)


def test_priors(bank, responses):
    everybody, one = bank.score(responses), bank.score(responses, prior="P2")
    given = bank.score(responses, prior=Prior([0.0, 0.0], [[1.0, 0.3], [0.3, 1.0]]))
    assert everybody["prior"][0] == "all periods"
    assert one["prior"][0] == "P2"
    assert given["prior"][0] == "given"
    named = responses.with_columns(pl.lit("P2").alias("season"))
    assert bank.score(named, prior_column="season").equals(one)
    torn = named.with_columns(season=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("P1")).otherwise("season"))
    with pytest.raises(DataError, match="several priors"):
        bank.score(torn, prior_column="season")
    with pytest.raises(DataError, match=r"shape \(1,\)"):
        bank.score(responses, prior=Prior([0.0], [[1.0]]))


def test_unknown_items(bank, responses):
    strange = pl.DataFrame(
        {"person_id": ["x1", responses["person_id"][0]], "item_id": ["zz", "zz"], "score": [1.0, 0.0]}
    )
    both = pl.concat([responses, strange])
    with pytest.raises(DataError, match=r"1 item the bank does not know, 2 rows: 'zz'"):
        bank.score(both)
    with pytest.warns(DataWarning, match=r"2 rows: 'zz'; ignored") as told:
        table = bank.score(both, unknown="ignore")
    assert told[0].filename == __file__  # it points at who asked
    with pytest.warns(DataWarning, match="ignored"):
        bank.plausible_values(both, 2, unknown="ignore")
    assert table["n_unknown"].sum() == 2
    lonely = table.filter(pl.col("person_id") == "x1").row(0, named=True)
    assert lonely["n_responses"] == 0
    assert lonely["flag_reading"] == "prior"


def test_bad_tables(bank, responses):
    with pytest.raises(DataError, match="several responses"):
        bank.score(pl.concat([responses, responses.head(2)]))
    with pytest.raises(DataError, match="must be 0 or 1"):
        bank.score(responses.with_columns(score=pl.lit(7.0)))
    with pytest.raises(DataError, match="missing column 'item_id'"):
        bank.score(responses.drop("item_id"))
    with pytest.raises(DataError, match="no rows"):
        bank.score(responses.head(0))


def test_wide_tables(bank, responses):
    wide = responses.pivot("item_id", index="person_id", values="score")
    silent = wide.head(1).with_columns(pl.lit("nobody").alias("person_id"), pl.exclude("person_id") * None)
    table = bank.score(pl.concat([wide, silent.cast(wide.schema)]), wide=True)
    assert table.filter(pl.col("person_id") != "nobody").equals(bank.score(responses))
    assert table.filter(pl.col("person_id") == "nobody")["flag_writing"].to_list() == ["prior"]


def test_large_files_are_scored_piece_by_piece(bank, responses, tmp_path):
    shuffled = responses.sample(fraction=1.0, shuffle=True, seed=1).with_columns(pl.lit("P2").alias("season"))
    for kind in ("csv", "parquet"):
        source = tmp_path / f"responses.{kind}"
        shuffled.write_csv(source) if kind == "csv" else shuffled.write_parquet(source)
        for out in ("csv", "parquet"):
            to = tmp_path / f"{kind}.{out}"
            request = ScoreRequest(ScoreOptions(), prior_column="season")
            done = score_file(bank.scoring(), source, to, request, large=0, piece=100)
            assert done.rows == 40
            read = pl.read_csv(to) if out == "csv" else pl.read_parquet(to)
            expected = bank.score(responses, prior="P2")
            assert read["person_id"].to_list() == expected["person_id"].to_list()
            np.testing.assert_allclose(read["theta_reading"], expected["theta_reading"], atol=1e-7)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_nothing_is_half_written(bank, responses, tmp_path):
    bad = pl.concat([responses, responses.tail(1).with_columns(score=pl.lit(9.0), item_id=pl.lit("v09"))])
    source, to = tmp_path / "r.csv", tmp_path / "scores.csv"
    bad.write_csv(source)
    for large in (0, 10**9):
        with pytest.raises(ConcalError, match="9"):
            score_file(bank.scoring(), source, to, ScoreRequest(), large=large, piece=100)
        assert [p.name for p in tmp_path.iterdir()] == ["r.csv"]
    with pytest.raises(DataError, match=r"\.csv or \.parquet"):
        score_file(bank.scoring(), source, tmp_path / "scores.txt", ScoreRequest())


def test_command(bank, responses, tmp_path):
    source, to = tmp_path / "r.csv", tmp_path / "scores.parquet"
    responses.write_csv(source)
    run = CliRunner().invoke
    result = run(app, ["score", str(bank.path), str(source), "--to", str(to), "--at", "spring"])
    assert result.exit_code == 0, result.output
    assert pl.read_parquet(to).equals(bank.at("spring").score(responses))
    result = run(app, ["score", str(bank.path), str(source), "--plausible-values", "3", "--to", str(to)])
    assert result.exit_code == 0, result.output
    assert pl.read_parquet(to).height == 3 * 40
    result = run(app, ["score", str(bank.path), str(source), "--json", "--method", "wle"])
    assert '"theta_reading"' in result.output


def test_plausible_values_do_not_depend_on_who_else_is_there(bank, responses):
    every = bank.plausible_values(responses, 3)
    one = responses["person_id"][0]
    alone = bank.plausible_values(responses.filter(pl.col("person_id") == one), 3)
    assert alone.equals(every.filter(pl.col("person_id") == one))


def test_reporting_changes_as_a_version_and_releases_keep_theirs(tmp_path, responses):
    made = Bank.create(tmp_path / "bank", Spec.parse({**SPEC.model_dump(exclude_none=True), "reporting": REPORTING}))
    made.add("P1", responses_table("P1"), items_table(), calibrator=fake_calibrator)
    made.release("old")
    before = made.score(responses)
    done = made.set_reporting(
        {"reading": {"slope": 2}, "overall": None, "writing": {"intercept": 7}}, reason="new scale"
    )
    assert done.version == 2
    assert made.history()["action"].to_list()[-1] == "reporting reading, overall, writing"
    assert made.history()["reason"].to_list()[-1] == "new scale"
    after = made.score(responses)
    assert [c for c in after.columns if c.startswith("score_")] == ["score_reading", "score_writing"]
    np.testing.assert_allclose(after["score_reading"], 2 * before["theta_reading"].to_numpy())
    np.testing.assert_allclose(after["score_writing"], 7 + before["theta_writing"].to_numpy())
    assert made.at("old").score(responses).equals(before)
    made.add("P2", responses_table("P2", first=4), items_table(), calibrator=fake_calibrator)
    assert set(made.spec.reporting) == {"reading", "writing"}  # later periods keep it
    for rules, message in (
        ({"spelling": None}, "no reported score 'spelling'"),
        ({"spelling": {"slope": 1}}, "not one of bank.dimensions"),
        ({"reading": {"slope": 0}}, "must not be 0"),
        ({"reading": {"slope": 2}}, "like this already"),
    ):
        with pytest.raises(ConcalError, match=message):
            made.set_reporting(rules)
    assert made.verify().ok


def test_reporting_from_the_command_line(tmp_path):
    place = str(tmp_path / "bank")
    Bank.create(place, SPEC)
    run = CliRunner().invoke
    assert "no reported scores" in run(app, ["reporting", place]).output
    shown = run(app, ["reporting", place, "reading", "--slope", "20", "--max", "160", "--json"])
    assert json.loads(shown.stdout)[0] | {"slope": 20.0, "max": 160.0, "min": None} == json.loads(shown.stdout)[0]
    both = ["--weight", "reading=0.5", "--weight", "writing=0.5"]
    assert "reading 0.5, writing 0.5" in run(app, ["reporting", place, "overall", *both, "--full"]).output
    run(app, ["reporting", place, "reading", "--intercept", "100"])
    assert Bank(place).spec.reporting["reading"].slope == 20.0  # what is not given stays
    (tmp_path / "bank.toml").write_text(
        Spec.parse({**SPEC.model_dump(exclude_none=True), "reporting": {"writing": {"slope": 3}}}).to_toml()
    )
    run(app, ["reporting", place, "--from", str(tmp_path / "bank.toml")])
    assert list(Bank(place).spec.reporting) == ["writing"]
    run(app, ["reporting", place, "writing", "--remove"])
    assert not Bank(place).spec.reporting
    assert list(Bank(place).at(1).spec.reporting) == ["reading"]
    for words in (["--slope", "2"], ["reading"], ["reading", "--remove", "--slope", "2"], ["overall", "--weight", "x"]):
        assert run(app, ["reporting", place, *words]).exit_code == 2


@pytest.fixture(scope="module")
def split_bank(tmp_path_factory):
    made = Bank.create(tmp_path_factory.mktemp("split") / "bank", SPEC)
    for name, first in (("P1", 0), ("P2", 2), ("P3", 4)):
        made.add(name, responses_table(name, first=first), items_table(), calibrator=fake_calibrator)
    made.split("v05", "P2", new_id="changed")  # all three have it
    return made, "v05"


@pytest.mark.filterwarnings("ignore::concal.DataWarning")
def test_ids_of_split_items_mean_the_item_of_the_period(split_bank):
    bank, item = split_bank
    rows = pl.DataFrame({"person_id": ["a", "b"], "item_id": [item, item], "score": [1.0, 0.0]})
    changed = rows.with_columns(item_id=pl.lit("changed"))
    with pytest.warns(DataWarning, match="'v05' scored as 'changed'"):
        now = bank.score(rows)
    assert now.equals(bank.score(changed))  # as it is now
    assert bank.score(rows, period="P3").equals(bank.score(changed))
    old = bank.score(rows, period="P1")
    assert not old.equals(bank.score(changed))
    assert bank.at(3).score(rows).columns == old.columns  # before the split it was one item
    named = rows.with_columns(season=pl.Series(["P1", "P3"]))
    mixed = bank.score(named, prior_column="season")
    alone = [
        bank.score(rows, period="P1", prior="P1")["theta_reading"][0],
        bank.score(changed, prior="P3")["theta_reading"][1],
    ]
    np.testing.assert_allclose(mixed["theta_reading"], alone, atol=1e-8)
    values = bank.plausible_values(rows, 3, period="P1")
    assert not values.equals(bank.plausible_values(rows, 3))
    with pytest.raises(DataError, match="no period 'P9'"):
        bank.score(rows, period="P9")
    with pytest.raises(DataError, match="several responses"):
        bank.score(pl.concat([rows, changed]))


def test_split_items_live_and_on_the_command_line(split_bank, tmp_path):
    bank, item = split_bank
    scorer = bank.scorer()
    assert scorer.score({item: 1.0}).theta == scorer.score({"changed": 1.0}).theta
    with pytest.raises(DataError, match="answered already"):
        scorer.score({item: 1.0, "changed": 1.0})
    rows = pl.DataFrame({"person_id": ["a"], "item_id": [item], "score": [1.0]})
    rows.write_csv(tmp_path / "rows.csv")
    told = CliRunner().invoke(app, ["score", str(bank.path), str(tmp_path / "rows.csv"), "--json"])
    assert f"'{item}' scored as 'changed'" in told.stderr
    past = CliRunner().invoke(app, ["score", str(bank.path), str(tmp_path / "rows.csv"), "--period", "P1", "--json"])
    assert json.loads(past.stdout) != json.loads(told.stdout)
    assert "scored as" not in past.stderr


def test_covariates_from_the_command_line(bank, responses, tmp_path):
    responses.write_csv(tmp_path / "responses.csv")
    ids = responses["person_id"].unique(maintain_order=True)
    pl.DataFrame({"person_id": ids, "hours": np.arange(ids.len()) % 7}).write_csv(tmp_path / "persons.csv")
    asked = ["score", str(bank.path), str(tmp_path / "responses.csv"), "--covariates", str(tmp_path / "persons.csv")]
    assert CliRunner().invoke(app, asked).exit_code == 2
    to = tmp_path / "values.parquet"
    done = CliRunner().invoke(app, [*asked, "--plausible-values", "2", "--to", str(to)])
    assert done.exit_code == 0, done.output
    values = bank.plausible_values(responses, 2, covariates=tmp_path / "persons.csv")
    assert pl.read_parquet(to).equals(values)


def with_group(spec, name, **options):
    """The spec with a group changed."""
    content = spec.model_dump(exclude_none=True)
    content["groups"][name] = {**content["groups"].get(name, {}), **options}
    return Spec.parse(content)


def fewer_categories(period, first, categories, persons=30):
    """Responses to both groups, essays with so many categories."""
    table = responses_table(period, first, persons=persons)
    essay = pl.col("item_id").str.starts_with("e")
    return table.with_columns(score=pl.when(essay).then(pl.col("score") % categories).otherwise(pl.col("score")))


def test_scores_are_of_the_items_as_they_were_calibrated_whatever_the_spec_says_now(tmp_path):
    """A period with one more category came and went; the spec still has its number."""
    bank = Bank.create(tmp_path / "bank", with_group(SPEC, "essay", categories=3))
    bank.add("P1", fewer_categories("P1", 0, 3), items_table(), calibrator=fake_calibrator)
    answered = pl.DataFrame({"person_id": ["x", "x"], "item_id": ["e01", "v01"], "score": [2.0, 1.0]})
    before, beyond = bank.score(answered), answered.with_columns(score=pl.Series([3.0, 1.0]))
    more = with_group(bank.spec, "essay", categories=4)
    bank.add("P2", fewer_categories("P2", 2, 4), items_table(), spec=more, calibrator=fake_calibrator)
    assert bank.score(beyond).height == 1
    bank.retract("P2")
    assert bank.score(answered).equals(before)
    for method in (bank.score, lambda table: bank.plausible_values(table, 2)):
        with pytest.raises(DataError, match="must be a whole number from 0 to 2"):
            method(beyond)
    with pytest.raises(DataError, match="must be a whole number from 0 to 2"):
        bank.scorer().score({"e01": 3})


def test_a_group_that_left_the_spec_is_scored_as_it_was_calibrated(bank):
    content = SPEC.model_dump(exclude_none=True)
    del content["groups"]["essay"]
    found = as_calibrated(Spec.parse(content), bank.consensus()).groups
    assert found["essay"].response_model == SPEC.groups["essay"].response_model
    assert found["essay"].dimension == "writing"
    assert as_calibrated(bank.spec, bank.consensus()).groups == bank.spec.groups
