"""Adding, replacing, retracting, rereferencing: what changes and what stays."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.bank.evaluation import FRAMES, Evaluation
from concal.bank.version import Version
from concal.data import read as read_module
from concal.errors import BankError, ConcalError, DataError, LinkError
from concal.metric import move_items
from concal.spec import Spec

from .places import Place, copy_bank
from .programme import SPEC, fake_calibrator, items_table, responses_table, same


def add(bank: Bank, period: str, first: int = 0, n: int = 12, **options: Any) -> Any:
    options = {"calibrator": fake_calibrator, **options}
    return bank.add(period, responses_table(period, first, n), items_table(), **options)


def three_periods(path: Path, order: tuple[str, ...] = ("Q1", "Q2", "Q3"), spec: Spec = SPEC) -> Bank:
    bank = Bank.create(path, spec)
    for period in order:
        add(bank, period, 2 * int(period[1]) - 2)
    return bank


def agree(left: Version, right: Version, tolerance: float = 0.0) -> None:
    one, two = left.consensus(), right.consensus()
    assert set(one.groups) == set(two.groups)
    for name, group in one.groups.items():
        other = two.groups[name]
        rows = [other.item_ids.index(item) for item in group.item_ids]
        assert len(group.item_ids) == len(other.item_ids)
        np.testing.assert_allclose(group.mean, other.mean[rows], atol=tolerance, rtol=0)
        np.testing.assert_allclose(group.covariance, other.covariance[rows], atol=tolerance, rtol=0)
        assert group.source.tolist() == other.source[rows].tolist()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return three_periods(tmp_path_factory.mktemp("template") / "bank").path


@pytest.fixture
def bank(any_place: Place, template: Path) -> Bank:
    copy_bank(template, any_place / "bank")
    return Bank(any_place / "bank")


def test_update_says_what_happened(place: Place) -> None:
    bank = Bank.create(place / "bank", SPEC)
    heard: list[str] = []
    update = add(bank, "Q1", progress=lambda stage, share, message: heard.append(stage), reason="first light")
    assert list(dict.fromkeys(heard)) == ["check", "calibrate", "link", "combine", "commit"]
    assert (update.version, update.action, bank.version, bank.reference) == (1, "add Q1", 1, "Q1")
    assert set(update.seconds) == {"check", "calibrate", "link", "combine", "commit"}
    assert "a doubt" in update.warnings
    assert update.tables["groups"].height == 2
    assert bank.history()["reason"].to_list() == ["", "first light"]
    assert os.listdir(bank._store.work) == []


def test_tables(bank: Bank) -> None:
    items = bank.items()
    assert items.columns[:6] == ["item_id", "group", "dimension", "model", "parameter", "mean"]
    assert items["item_id"].n_unique() == 32
    assert bank.items(["e03"])["parameter"].to_list() == ["d", "log_a", "c_1", "c_2"]
    with pytest.raises(BankError, match="1 item not in the bank: 'nope'"):
        bank.items(["nope"])
    assert bank.periods()["period"].to_list() == ["Q1", "Q2", "Q3"]
    assert bank.links().filter(pl.col("period") == "Q1")["A"].to_list() == [1.0, 1.0]
    assert bank.drift().height > 0
    assert bank.show()["items"] == {"consensus": 32, "fallback": 0, "predicted": 0}
    assert bank.parameters()["a"].min() > 0
    plan = bank.linkage()
    assert plan is not None
    assert plan.chains["reading", "Q3"] == ("Q3", "Q1")
    assert bank.person_ids().len() == 90


def test_draws_do_not_depend_on_what_else_is_asked(bank: Bank) -> None:
    both, one = bank.draws(["v01", "e02"]), bank.draws(["e02"])
    assert both.sizes == {"chain": 1, "draw": 2000, "item": 2, "parameter": 4}
    np.testing.assert_array_equal(both["xi"].sel(item="e02"), one["xi"].sel(item="e02"))
    assert np.isnan(both["xi"].sel(item="v01", parameter="c_1")).all()


def test_predicted_items(any_place: Place) -> None:
    bank = Bank.create(any_place / "bank", SPEC)
    bank.add("Q1", responses_table("Q1"), items_table(20), calibrator=fake_calibrator)
    kinds = dict(bank.items().filter(pl.col("parameter") == "d").select("item_id", "source").iter_rows())
    assert kinds["v19"] == "predicted"
    assert kinds["v03"] == "consensus"
    new = pl.DataFrame({"item_id": ["v19", "brand new"], "group": ["vocabulary"] * 2, "length": [4.0, 4.0]})
    predicted = bank.predict(new)
    assert predicted["source"].to_list() == ["predicted"] * 4
    stored = bank.items(["v19"])
    np.testing.assert_allclose(predicted.filter(item_id="v19")["mean"], stored["mean"], atol=1e-12)
    np.testing.assert_allclose(predicted.filter(item_id="v19")["sd"], stored["sd"], atol=1e-12)
    with pytest.raises(DataError):
        bank.predict(pl.DataFrame({"item_id": ["x"], "group": ["vocabulary"], "length": [None]}))
    assert bank.version == 1


def test_same_period_twice_is_refused_and_replace_is_one_commit(bank: Bank) -> None:
    before = bank.at(3).items()
    with pytest.raises(BankError, match="'Q2' is in the bank already"):
        add(bank, "Q2")
    with pytest.raises(BankError, match="differs from 'Q2' only by case"):
        add(bank, "q2")
    with pytest.raises(BankError, match="nothing to replace"):
        add(bank, "Q9", replace=True)
    assert bank.refresh().version == 3
    update = add(bank, "Q2", 3, replace=True)
    assert (update.version, update.action) == (4, "replace Q2")
    assert bank.period_names == ("Q1", "Q2", "Q3")
    assert bank.at(3).items().equals(before)
    assert not bank.items().equals(before)


def test_a_period_that_others_hang_on_cannot_leave_them_without_a_link(any_place: Place) -> None:
    """The check says so before anything is calibrated."""
    bank = Bank.create(any_place / "bank", SPEC)
    table = items_table(40)

    def answers(period: str, first: int) -> pl.DataFrame:
        return responses_table(period, first, 10, items=40)

    for period, first in (("Q1", 0), ("Q2", 6), ("Q3", 13)):
        bank.add(period, answers(period, first), table, calibrator=fake_calibrator)
    with pytest.raises(DataError) as caught:
        bank.check("Q2", answers("Q2", 2), table, replace=True)
    text = str(caught.value)
    assert text.startswith(
        "1 period would be left without a link, because 'Q2' is replaced:\n  - period 'Q3' shares too"
    )
    assert "of dimension 'reading' to be linked to the reference 'Q1': 0 with 'Q2', 0 with 'Q1'; 3 are needed" in text
    assert text.endswith("keep the items in the period that they are linked by, or retract what they link first")
    with pytest.raises(DataError, match=r"2 periods would be left without a link, because 'Q1', .* is replaced"):
        bank.check("Q1", answers("Q1", 26), table, replace=True)
    bank.check("Q2", answers("Q2", 7), table, replace=True)
    bank.check("Q1", answers("Q1", 16), table, replace=True)


def test_a_period_that_shares_too_few_items_as_it_is_keeps_no_other_from_being_replaced(any_place: Place) -> None:
    """It is linked by what there is, with a warning; a higher `min_anchors` came with the bank's spec."""
    bank = Bank.create(any_place / "bank", SPEC)
    table = items_table(40)
    for period, first in (("Q1", 0), ("Q2", 7), ("Q3", 2)):
        bank.add(period, responses_table(period, first, 10, items=40), table, calibrator=fake_calibrator)
    more = SPEC.model_copy(update={"linking": SPEC.linking.model_copy(update={"min_anchors": 6})})
    again = responses_table("Q3", 2, 10, items=40)
    bank.check("Q3", again, table, spec=more, replace=True)  # with Q1 eight items; Q2 and Q1 have three, Q2 and Q3 five
    with pytest.raises(DataError, match="2 periods would be left without a link"):
        bank.check("Q1", responses_table("Q1", 26, 10, items=40), table, replace=True)


def test_a_reference_that_comes_later_must_link_what_is_there(any_place: Place) -> None:
    spec = SPEC.model_copy(update={"bank": SPEC.bank.model_copy(update={"reference": "Q2"})})
    bank = Bank.create(any_place / "bank", spec)
    table = items_table(40)
    bank.add("Q1", responses_table("Q1", 0, 10, items=40), table, calibrator=fake_calibrator)
    with pytest.raises(DataError, match=r"1 period would be left without a link, because 'Q2' is the reference"):
        bank.check("Q2", responses_table("Q2", 20, 10, items=40), table)
    bank.check("Q2", responses_table("Q2", 5, 10, items=40), table)


def test_replacing_gives_what_adding_would_have_given(any_place: Place, bank: Bank) -> None:
    add(bank, "Q2", 3, replace=True)
    fresh = Bank.create(any_place / "fresh", SPEC)
    add(fresh, "Q1", 0)
    add(fresh, "Q2", 3)
    add(fresh, "Q3", 4)
    agree(bank, fresh, 1e-12)


def test_order_of_periods_does_not_matter(any_place: Place) -> None:
    spec = SPEC.model_copy(update={"bank": SPEC.bank.model_copy(update={"reference": "Q1"})})
    one = three_periods(any_place / "one", ("Q1", "Q2", "Q3"), spec)
    two = three_periods(any_place / "two", ("Q3", "Q2", "Q1"), spec)
    assert two.reference == "Q1"
    assert two.at(2).reference == "Q3", "until the reference is there, the first period sets the metric"
    agree(one, two, 1e-9)


def test_retraction_is_as_if_the_period_had_never_been(any_place: Place, bank: Bank) -> None:
    bank.retract("Q2", reason="leaked items")
    fresh = Bank.create(any_place / "fresh", SPEC)
    add(fresh, "Q1", 0)
    add(fresh, "Q3", 4)
    agree(bank, fresh)
    assert bank.period_names == ("Q1", "Q3")
    assert bank.at(3).period_names == ("Q1", "Q2", "Q3")
    with pytest.raises(BankError, match="there is no period 'Q2'"):
        bank.retract("Q2")


def test_retracting_the_reference_relinks(any_place: Place, bank: Bank) -> None:
    update = bank.retract("Q1")
    assert bank.reference == "Q2"
    assert set(update.relinked) == {"Q2", "Q3"}
    fresh = Bank.create(any_place / "fresh", SPEC)
    add(fresh, "Q2", 2)
    add(fresh, "Q3", 4)
    agree(bank, fresh)
    bank.retract("Q2")
    bank.retract("Q3")
    assert bank.items().height == 0
    assert bank.reference is None
    with pytest.raises(BankError, match="no period yet"):
        bank.consensus()
    add(bank, "Q1")
    assert bank.reference == "Q1"


def test_period_linked_through_another_is_relinked_when_that_goes(any_place: Place) -> None:
    bank = Bank.create(any_place / "bank", SPEC)
    table = items_table(40)

    def put(period: str, first: int) -> Any:
        return bank.add(period, responses_table(period, first, 10, items=40), table, calibrator=fake_calibrator)

    put("Q1", 0)
    put("Q2", 6)
    put("Q3", 13)
    assert "Q2" in str(bank.link("Q3").path) or "consensus" in str(bank.link("Q3").path)
    with pytest.raises(LinkError):
        bank.retract("Q2")
    assert bank.refresh().version == 3
    put("Q4", 4)
    put("Q5", 9)
    update = bank.retract("Q2")
    assert "Q3" in update.relinked
    assert "Q2" not in str(bank.link("Q3").path)


def test_rereference_links_again(any_place: Place, bank: Bank) -> None:
    before = bank.consensus()
    link = bank.link("Q3")
    update = bank.rereference("Q3")
    assert bank.reference == "Q3"
    assert bank.spec.bank.reference == "Q3"
    assert set(update.relinked) == {"Q1", "Q2", "Q3"}
    np.testing.assert_array_equal(bank.link("Q3").A, 1.0)
    for name, group in bank.consensus().groups.items():
        k = link.dimensions.index(group.dimension)
        mapped = move_items(group.mean, link.A[:, k].mean(), link.B[:, k].mean())
        assert np.abs(mapped - before.groups[name].mean).max() < 0.25
    same(bank.calibration("Q1"), bank.at(3).calibration("Q1"))
    fresh = three_periods(any_place / "fresh", spec=bank.spec)
    agree(bank, fresh, 1e-12)
    add(bank, "Q4", 1)
    assert bank.link("Q4").reference == "Q3"
    assert bank.rereference("Q3").relinked == ()


def test_combine_with_other_options_stays(bank: Bank) -> None:
    plain = bank.items()
    bank.combine(half_life=1.0, reason="items drift")
    assert not bank.items().equals(plain)
    assert bank.consensus_spec.half_life == 1.0
    add(bank, "Q4", 1)
    assert bank.consensus_spec.half_life == 1.0
    bank.retract("Q4")
    bank.combine(half_life=None)
    np.testing.assert_allclose(bank.items()["mean"], plain["mean"], atol=1e-12)
    for options in ({"half_life": -1.0}, {"method": "magic"}, {"halflife": 2}):
        with pytest.raises(ConcalError):
            bank.combine(**options)  # type: ignore[arg-type]


def test_readers_are_pinned(bank: Bank) -> None:
    reader = Bank(bank.path)
    before = reader.items()
    bank.retract("Q3")
    assert reader.version == 3
    assert reader.items().equals(before)
    assert reader.refresh().version == 4


def test_releases_give_exactly_what_was_there(bank: Bank) -> None:
    bank.release("fall", note="approved")
    frozen = bank.items()
    bank.retract("Q2")
    assert bank.at("fall").items().equals(frozen)
    assert bank.at(3).items().equals(frozen)
    assert bank.releases() == {"fall": 3}
    assert bank.history()["releases"].to_list() == [None, None, None, "fall", None]
    with pytest.raises(BankError, match="no version 99; versions run from 0 to 4"):
        bank.at(99)


def made_evaluation(name: str) -> Evaluation:
    tables = dict.fromkeys(FRAMES, pl.DataFrame({"parameter": ["d"], "mean_r": [0.999]}))
    cost = {"seconds": 3.5, "none": float("nan")}
    return Evaluation(name, "Q1", ("Q1",), ("joint",), fallback={}, cost=cost, **tables)


@pytest.mark.parametrize("name", ["../x", "", "x" * 300, "CON", "consensus", "a b", "Q\u200b1", "ｑ１", "a/b", "-x"])
def test_hostile_period_names(any_place: Place, tmp_path: Path, name: str) -> None:
    bank = Bank.create(any_place / "bank", SPEC)
    with pytest.raises(ConcalError):
        add(bank, name)
    with pytest.raises(ConcalError):
        bank.add_evaluation(made_evaluation(name))
    assert bank.refresh().version == 0
    assert os.listdir(bank._store.work) == []
    assert sorted(os.listdir(tmp_path)) == (["bank"] if any_place.is_folder else ["cache"])


def test_failed_calibration_changes_nothing_and_the_next_run_works(bank: Bank) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise MemoryError("no memory")

    with pytest.raises(MemoryError):
        add(bank, "Q4", 1, calibrator=broken)
    assert bank.refresh().version == 3
    assert bank.verify().ok
    add(bank, "Q4", 1)


def test_finished_calibration_is_not_run_again(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def counted(data: Any, spec: Any, *, period: str, **options: Any) -> Any:
        runs.append(period)
        return fake_calibrator(data, spec, period=period, **options)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("concal.bank.building.next_version.consensus_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            add(bank, "Q4", 1, calibrator=counted)
    assert bank.refresh().version == 3
    add(bank, "Q4", 1, calibrator=counted)
    assert runs == ["Q4"]
    assert os.listdir(bank._store.work) == []


def test_returning_examinees_are_left_out(bank: Bank) -> None:
    mixed = pl.concat([responses_table("Q4", 1), responses_table("Q2", 1, persons=5)])
    update = bank.add("Q4", mixed, items_table(), calibrator=fake_calibrator)
    assert any("5 examinees" in text for text in update.warnings)
    assert bank.periods()["n_persons"].to_list() == [30, 30, 30, 30]


def test_responses_are_kept_for_evaluation_unless_switched_off(any_place: Place) -> None:
    bank = Bank.create(any_place / "bank", SPEC)
    add(bank, "Q1")
    data = bank.period_data("Q1")
    table = responses_table("Q1")
    assert data.n_responses == table.height
    group = data.groups["essay"]
    back = pl.DataFrame(
        {
            "person_id": data.person_ids.gather(group.person),
            "item_id": pl.Series(group.item_ids).gather(group.item),
            "score": group.score,
        }
    )
    wanted = table.filter(pl.col("item_id").str.starts_with("e"))
    assert back.sort("person_id", "item_id").equals(wanted.sort("person_id", "item_id"))
    add(bank, "Q2", 2, keep_responses=False)
    with pytest.raises(BankError, match="without its responses"):
        bank.period_data("Q2")


def test_evaluations_are_kept_but_are_no_periods(bank: Bank) -> None:
    with pytest.raises(BankError, match="none was made yet: `concal evaluate`"):
        bank.evaluation()
    made = made_evaluation("pooled")
    bank.add_evaluation(made)
    found = bank.evaluation()
    assert found.cost["seconds"] == 3.5
    assert np.isnan(found.cost["none"])
    assert found.agreement.equals(made.agreement)
    assert found.periods == ("Q1",)
    assert bank.period_names == ("Q1", "Q2", "Q3")
    with pytest.raises(BankError, match="no evaluation 'x'"):
        bank.evaluation("x")


def test_changed_spec_is_kept_from_that_version_on(bank: Bank) -> None:
    groups = {**SPEC.groups, "essay": SPEC.groups["essay"].model_copy(update={"features": "~ length"})}
    add(bank, "Q4", 1, spec=SPEC.model_copy(update={"groups": groups}))
    assert bank.spec.groups["essay"].features == "~ length"
    assert bank.at(3).spec == SPEC
    add(bank, "Q5", 2)
    assert bank.calibration("Q5").groups["essay"].features == ("1", "length")


def guided_calibrator(data: Any, spec: Spec, **options: Any) -> Any:
    """The fake calibration, with the guide it was given."""
    made = fake_calibrator(data, spec, **options)
    groups = {}
    for name, group in made.groups.items():
        guide = data.groups[name].guide
        if guide is not None:
            link = np.random.default_rng(1).normal(0, 0.05, (*group.xi.shape[:2], 2))
            group = replace(group, guide_mean=guide.mean, guide_covariance=guide.covariance, guide_link=link)
        groups[name] = group
    return replace(made, groups=groups)


def test_priors_from_the_bank(any_place: Place) -> None:
    content = SPEC.model_dump(mode="json", exclude_none=True)
    content["calibration"]["prior"] = "bank"
    bank = Bank.create(any_place / "bank", Spec.parse(content))
    seen: dict[str, Any] = {}

    def watched(data: Any, spec: Spec, **options: Any) -> Any:
        seen[options["period"]] = data
        return guided_calibrator(data, spec, **options)

    add(bank, "Q1", 0, calibrator=watched)
    known = bank.consensus().groups["vocabulary"]
    add(bank, "Q2", 2, calibrator=watched)
    assert all(g.guide is None for g in seen["Q1"].groups.values())  # an empty bank knows nothing
    group = seen["Q2"].groups["vocabulary"]
    met = [j for j, item in enumerate(group.item_ids) if known.n_periods[known.item_ids.index(item)] > 0]
    rows = [known.item_ids.index(group.item_ids[j]) for j in met]
    np.testing.assert_array_equal(group.guide.mean[met], known.mean[rows])
    assert 0 < len(met) < len(group.item_ids)
    stored = bank.calibration("Q2").groups["vocabulary"]
    np.testing.assert_array_equal(stored.guide_mean, group.guide.mean)
    np.testing.assert_array_equal(stored.guide_covariance, group.guide.covariance)
    assert stored.guide_link is not None
    assert bank.periods()["prior"].to_list() == ["population", "bank"]
    add(bank, "Q1", 0, calibrator=watched, replace=True)  # the only period that tells the population goes on telling it
    assert all(g.guide is None for g in seen["Q1"].groups.values())
    for method in ("analytic", "joint"):
        bank.combine(method=method)
        assert np.isfinite(bank.consensus().groups["essay"].mean).all()
    before = bank.version
    with pytest.raises(DataError, match=r"was calibrated with priors from the bank"):
        bank.retract("Q1")
    assert bank.version == before


def test_a_file_of_responses_is_read_once(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_bank(template, tmp_path / "bank")
    responses = tmp_path / "responses.csv"
    responses_table("Q4", 4).write_csv(responses)
    read: list[Path] = []
    real = read_module.read_file
    monkeypatch.setattr(read_module, "read_file", lambda path, **options: (read.append(path), real(path, **options))[1])
    update = Bank(tmp_path / "bank").add("Q4", responses, items_table(), calibrator=fake_calibrator)
    assert read == [responses]
    assert update.costs["check"].cpu_seconds > 0
    assert update.costs["commit"].peak_mib > 10
    assert update.seconds["commit"] > 0
