"""The pooled benchmark of a bank, with a made-up engine."""

import shutil
from dataclasses import replace

import polars as pl
import pytest
from reported_bank import PERIODS, SPEC, items_table, made_up, make_bank, responses_table, truth

from concal.bank.bank import Bank
from concal.calibration.sampler import Progress
from concal.errors import BankError, ConvergenceError, DataError
from concal.evaluate import pooled
from concal.evaluate.pooled import evaluate_bank, fit_pooled


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return make_bank(tmp_path_factory.mktemp("evaluate") / "bank", n=40)


@pytest.fixture(scope="module")
def known():
    rows = []
    for item, group in items_table(40).select("item_id", "group").iter_rows():
        names = SPEC.groups[group].response_model.parameters
        rows += [(item, name, float(v)) for name, v in zip(names, truth(item, len(names)), strict=True)]
    return pl.DataFrame(rows, schema=["item_id", "parameter", "value"], orient="row")


def test_evaluation_is_kept_and_changes_no_item(bank, known):
    before, version = bank.items(), bank.version
    found = evaluate_bank(bank, truth=known, methods=("analytic",), calibrator=made_up)
    assert bank.version == version + 1
    assert found.version == version
    assert bank.items().equals(before)
    kept = Bank(bank.path).evaluation()
    assert kept.content() == found.content()
    for name, frame in found.frames().items():
        assert frame.equals(kept.frames()[name]), name
    assert set(found.recovery["method"]) == {"analytic", "pooled"}
    assert found.periods == PERIODS
    assert set(found.cost["update_seconds"]) == set(PERIODS)
    assert found.cost["pooled_peak_mib"] > 10
    assert found.abilities.height == 2 * len(PERIODS)


def test_joint_and_analytic_are_compared_unless_others_are_asked_for(bank, monkeypatch):
    real = Bank.consensus

    def consensus(self, method=None, *, joint=True):
        if method == "joint":  # the sampler itself is tested elsewhere
            return replace(real(self, "analytic", joint=joint), method="joint")
        return real(self, method, joint=joint)

    monkeypatch.setattr(Bank, "consensus", consensus)
    found = evaluate_bank(bank, calibrator=made_up, keep=False)
    assert found.methods == ("joint", "analytic")
    assert set(found.agreement["method"]) == {"joint", "analytic"}
    asked = evaluate_bank(bank, methods=("analytic",), calibrator=made_up, keep=False)
    assert set(asked.agreement["method"]) == {"analytic"}


def test_a_bank_of_the_papers_method_is_compared_by_it(bank, tmp_path):
    """Its links are made by the paper's rule, so the others would not be those of a bank of theirs."""
    copy = Bank(shutil.copytree(bank.path, tmp_path / "bank"))
    copy.combine(method="paper")
    found = evaluate_bank(copy, calibrator=made_up, keep=False)
    assert found.methods == ("paper",)
    found = evaluate_bank(copy, methods=("paper", "analytic"), calibrator=made_up, keep=False)
    assert found.methods == ("paper",)
    assert any("not compared: method 'analytic'" in text for text in found.warnings)


def test_abilities_are_compared_at_the_links_in_force(bank):
    found = evaluate_bank(bank, methods=("analytic",), calibrator=made_up, keep=False)
    row = found.abilities.row(-1, named=True)
    link = bank.consensus().links.filter(period=row["period"], dimension=row["dimension"]).row(0, named=True)
    assert row["sd"] == pytest.approx(link["A_mean"], abs=0.01)
    assert row["mean"] == pytest.approx(link["B_mean"], abs=0.01)


def test_interrupted_fit_finds_its_checkpoint_again(bank):
    seen = []

    def dies(data, spec, *, checkpoint, **more):
        checkpoint.write_text("half done")
        raise KeyboardInterrupt

    def goes_on(data, spec, *, checkpoint, **more):
        seen.append(checkpoint.read_text())
        return made_up(data, spec, **more)

    goes_on.__qualname__ = dies.__qualname__  # the same engine, run again
    with pytest.raises(KeyboardInterrupt):
        evaluate_bank(bank, methods=("analytic",), calibrator=dies, keep=False)
    evaluate_bank(bank, methods=("analytic",), calibrator=goes_on, keep=False)
    assert seen == ["half done"]
    assert not list((bank.path / "work").glob("calibration-pooled-*/checkpoint"))


def test_a_method_that_fails_is_said_and_the_other_compared(bank, monkeypatch):
    real = Bank.consensus

    def consensus(self, method=None, *, joint=True):
        if method == "joint":
            raise ConvergenceError("no mode")
        return real(self, method, joint=joint)

    monkeypatch.setattr(Bank, "consensus", consensus)
    found = evaluate_bank(bank, calibrator=made_up, keep=False)
    assert found.methods == ("analytic",)
    assert "not compared: no mode" in found.warnings
    with pytest.raises(ConvergenceError, match="no mode"):
        evaluate_bank(bank, methods=("joint",), calibrator=made_up, keep=False)


def test_one_period_is_nothing_to_pool(tmp_path):
    alone = make_bank(tmp_path / "bank", n=20, periods=PERIODS[:1])
    with pytest.raises(BankError, match="needs at least two"):
        evaluate_bank(alone, calibrator=made_up)


def test_fit_pooled_hands_on_populations(monkeypatch):
    monkeypatch.setattr(pooled, "calibrate_period", made_up)
    items = items_table(20)
    found = fit_pooled({p: responses_table(items, p) for p in PERIODS}, items, SPEC, reference=PERIODS[1])
    assert found.abilities.populations == (PERIODS[1], PERIODS[0], PERIODS[2])
    assert found.period == "pooled"


def test_fit_pooled_counts_returning_examinees_once(monkeypatch):
    monkeypatch.setattr(pooled, "calibrate_period", made_up)
    items = items_table(20)
    first = responses_table(items, PERIODS[0])
    returning = pl.concat([responses_table(items, PERIODS[1]), first.head(100)])
    found = fit_pooled({PERIODS[0]: first, PERIODS[1]: returning}, items, SPEC)
    persons = found.abilities.person_ids
    assert persons.n_unique() == persons.len()


def test_nothing_to_fit_is_said():
    with pytest.raises(DataError, match="no period was given"):
        fit_pooled({}, items_table(5), SPEC)


def test_the_fit_says_where_it_is(bank):
    heard = []

    def samples(data, spec, *, progress, **options):
        progress(Progress("sampling", 300, 600, 10.0, None, (20.0, 30.0)))
        return made_up(data, spec, progress=progress, **options)

    evaluate_bank(
        bank, methods=("analytic",), calibrator=samples, keep=False, progress=lambda *told: heard.append(told)
    )
    assert [(stage, share) for stage, share, _ in heard] == [("pooled fit", 0.5)]
    assert "sweep 300" in heard[0][2]
