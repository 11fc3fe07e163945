"""What contradicts itself is said, and nothing is where all is well."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from phi_worlds import changed, phi_world

from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.drift.alarms import raise_alarms
from concal.consensus.drift.outside import outside_range
from concal.spec import ConsensusSpec

SPEC = ConsensusSpec()


@pytest.fixture(scope="module")
def still():
    """Periods whose own posteriors are what their factors say."""
    world = phi_world(seed=12, n_items=120, n_periods=4, share=0.8, error=(0.05, 0.15), links=False)
    return [changed(p, **own_posterior(p.factors.groups["g"])) for p in world.placed]


def own_posterior(group):
    phi = np.linalg.solve(group.Q, group.h[..., None])[..., 0]
    slope = np.maximum(phi[:, 1], 0.05)
    mean = np.column_stack([-phi[:, 0] / slope, np.log(slope)])
    K = np.zeros_like(group.Q)
    K[:, 0, 0], K[:, 0, 1], K[:, 1, 1] = -1 / slope, phi[:, 0] / slope**2, 1 / slope
    return {"mean": mean, "covariance": K @ np.linalg.inv(group.Q) @ K.transpose(0, 2, 1)}


def consensus_of(placed):
    return consensus_from_totals(sum_periods(placed))


def kinds(placed, consensus=None):
    return [alarm.kind for alarm in raise_alarms(placed, consensus or consensus_of(placed), SPEC)]


def test_quiet_where_all_is_well(still):
    assert raise_alarms(still, consensus_of(still), SPEC) == ()


def test_a_consensus_beyond_all_its_periods(still):
    found = consensus_of(still)
    group = found.groups["g"]
    mean = group.mean.copy()
    mean[3, 1] += 1.5
    wrong = replace(found, groups={"g": replace(group, mean=mean)})
    table = outside_range(still, wrong)
    assert table.select("item_id", "parameter").row(0) == ("item-003", "log_a")
    assert table["mean"][0] > table["highest"][0]
    alarm = next(a for a in raise_alarms(still, wrong, SPEC) if a.kind == "outside")
    assert alarm.section == "consensus"
    assert "1 item lies outside the range of its own periods" in alarm.text
    assert "item-003" in alarm.text
    assert "concal exclude" in alarm.text


def test_many_items_that_drift_and_a_period_that_conflicts(still):
    group = still[2].factors.groups["g"]
    h = group.h.copy()
    h[::5] += np.einsum("jab,b->ja", group.Q[::5], [1.5, 0.0])
    placed = [*still[:2], changed(still[2], h=h), still[3]]
    alarm = next(a for a in raise_alarms(placed, consensus_of(placed), SPEC) if a.kind == "drift")
    assert "tested items drift" in alarm.text
    assert "most of them in 'P3'" in alarm.text
    off = [*still[:3], changed(still[3], link_mean=[[0.0, 0.6]])]
    texts = [a.text for a in raise_alarms(off, consensus_of(off), SPEC) if a.kind == "period"]
    assert any(text.startswith("period 'P4', 'reading'") and "expected" in text for text in texts)


def test_links_that_disagree(still):
    placed = [still[0], *(changed(p, link_covariance=[np.diag([0.0004, 0.0004])]) for p in still[1:])]
    found = consensus_of(placed)
    assert "link" not in kinds(placed, found)
    moved = pl.when(pl.col("period") == "P2").then(pl.col("B_mean") + 0.2).otherwise(pl.col("B_mean"))
    other = replace(found, links=found.links.with_columns(moved.alias("B_mean")))
    alarms = [a for a in raise_alarms(placed, other, SPEC) if a.kind == "link"]
    assert len(alarms) == 1
    assert "its anchors alone give A = 1.000, B = 0.000, all items together" in alarms[0].text
    assert "concal links BANK --period P2" in alarms[0].text


def test_few_items_say_nothing_about_shares(still):
    """One of eight items that moves is not an epidemic."""
    group = still[2].factors.groups["g"]
    few = [changed(p, **_first(p.factors.groups["g"], 8)) for p in still]
    h = few[2].factors.groups["g"].h.copy()
    h[0] += group.Q[0] @ [2.0, 0.0]
    few[2] = changed(few[2], h=h)
    assert "drift" not in kinds(few)


def _first(group, n):
    parts = {name: getattr(group, name)[:n] for name in group.PER_ITEM if getattr(group, name) is not None}
    return {"item_ids": group.item_ids[:n], **parts}
