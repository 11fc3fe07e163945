"""The joint consensus: invariants, reproducibility, what it says of items nobody answered, protected links."""

from dataclasses import replace

import numpy as np
import pytest
from phi_worlds import changed, lacking, only, phi_world

from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.joint.consensus import combine_jointly
from concal.consensus.joint.sampler import JointTrace
from concal.errors import LinkError
from concal.spec import ConsensusSpec

SPEC = ConsensusSpec(seed=3)


def joint(placed, spec=SPEC, **options):
    return combine_jointly(placed, sum_periods(placed, spec.half_life), spec, **options)


@pytest.fixture(scope="module")
def world():
    return phi_world(seed=21, n_items=40, error=(0.1, 0.3), tau=0.01)


@pytest.fixture(scope="module")
def found(world):
    return joint(world.placed)


def distance(one, other, ids=None):
    """Root-mean-square distance of the means of items in SDs, and mean SD ratio."""
    a, b = (x.groups["g"] if hasattr(x, "groups") else x for x in (one, other))
    ids = a.item_ids if ids is None else sorted(ids)
    own, rows = ([g.item_ids.index(i) for i in ids] for g in (a, b))
    return np.sqrt((((a.mean[own] - b.mean[rows]) / b.sd[rows]) ** 2).mean()), (a.sd[own] / b.sd[rows]).mean()


def test_items_and_links_are_where_they_were_simulated(world, found):
    g = found.groups["g"]
    rows = [world.item_ids.index(i) for i in g.item_ids]
    z = (g.mean - world.xi[rows]) / g.sd
    assert 0.75 < np.sqrt((z**2).mean()) < 1.3
    links = found.links
    assert links["period"].to_list() == ["P1", "P2", "P3"]
    gap = links["B_mean"].to_numpy() - world.links[:, 1]
    assert (np.abs(gap[1:]) < 4 * links["B_sd"].to_numpy()[1:]).all()
    assert links["B_sd"][0] < 1e-3  # a reference without wobble


def test_joint_draws_have_the_moments_they_are_told_with(found):
    g, draws = found.groups["g"], found.joint["g"]
    assert draws.shape == (400, len(g.item_ids), 2)
    assert draws.dtype == np.float32
    np.testing.assert_allclose((draws.mean(axis=0) - g.mean) / g.sd, 0.0, atol=0.3)
    np.testing.assert_allclose((draws.std(axis=0) / g.sd).mean(), 1.0, atol=0.05)


def test_same_seed_same_numbers_whatever_the_threads(world, found, monkeypatch):
    for threads in (1, 5):
        monkeypatch.setattr("concal.consensus.joint.consensus.available_cores", lambda threads=threads: threads)
        again = joint(world.placed)
        np.testing.assert_array_equal(again.groups["g"].mean, found.groups["g"].mean)
        np.testing.assert_array_equal(again.groups["g"].covariance, found.groups["g"].covariance)
        np.testing.assert_array_equal(again.joint["g"], found.joint["g"])
        assert again.links.equals(found.links)
    other = joint(world.placed, SPEC.model_copy(update={"seed": 4}))
    off, ratio = distance(other, found)
    assert 0 < off < 0.12
    assert ratio == pytest.approx(1.0, abs=0.03)


def test_order_does_not_matter(world, found):
    shuffled = [world.placed[m] for m in (2, 0, 1)]
    off, ratio = distance(joint(shuffled), found)
    assert off < 0.12
    assert ratio == pytest.approx(1.0, abs=0.03)


def test_one_period_alone_is_the_analytic_one(world):
    """Nothing to link: both methods say the same, but that analytic is told a population and joint asks the items."""
    off, ratio = distance(joint(world.placed[:1]), consensus_from_totals(sum_periods(world.placed[:1])))
    assert off < 0.25
    assert ratio == pytest.approx(1.0, abs=0.05)


def test_a_period_without_information_changes_nothing(world):
    group = world.placed[2].factors.groups["g"]
    silent = changed(world.placed[2], Q=1e-9 * group.Q, h=0.0 * group.h, guided=True)
    here = set(world.placed[0].factors.groups["g"].item_ids) | set(world.placed[1].factors.groups["g"].item_ids)
    rows = [j for j, item in enumerate(group.item_ids) if item in here]
    off, ratio = distance(joint(world.placed[:2]), joint([*world.placed[:2], only(silent, rows)]))
    assert off < 0.12
    assert ratio == pytest.approx(1.0, abs=0.03)


def test_items_nobody_answered_are_predicted(world, found):
    X = np.array([[1.0, 0.5], [1.0, -2.0]])
    got = joint(world.placed, items={"g": (["new-1", "new-2"], X)})
    g = got.groups["g"]
    rows = [g.item_ids.index(i) for i in ("new-1", "new-2")]
    assert g.source[rows].tolist() == ["predicted", "predicted"]
    np.testing.assert_allclose(g.mean[rows], X @ g.beta, atol=1e-9)
    assert (g.sd[rows] > np.sqrt(np.diag(g.sigma))).all()
    draws = got.joint["g"][:, rows]
    np.testing.assert_allclose((draws.mean(axis=0) - g.mean[rows]) / g.sd[rows], 0.0, atol=0.2)
    np.testing.assert_array_equal(g.mean[: len(found.groups["g"].item_ids)], found.groups["g"].mean)


@pytest.fixture(scope="module")
def known_and_not():
    """A strong feature; the same bank with it known in every period, and with a period that lacked it."""
    world = phi_world(seed=8, n_items=150, n_periods=2, share=0.6, effect=0.8, error=(0.2, 0.5), tau=0.01)
    poor = [world.placed[0], lacking(world.placed[1])]
    return world, joint(world.placed), joint(poor), joint(world.placed[:1])


def test_a_period_that_lacked_a_column_does_not_widen_the_spread_of_the_others(known_and_not):
    """With its items at mean features among the others, SDs of Sigma are 1.12 and .47, those of the others' items
    10 % larger."""
    world, known, poor, alone = (x.groups["g"] if hasattr(x, "groups") else x for x in known_and_not)
    assert poor.features == ("1", "f1")
    sd = np.sqrt(np.diag(alone.beta_covariance)).reshape(alone.beta.shape)
    assert (np.abs(poor.beta - alone.beta) / sd < 1.0).all()
    np.testing.assert_allclose(np.diag(poor.sigma) / np.diag(known.sigma), 1.0, atol=0.1)
    only_there = {i for i in world.placed[1].factors.groups["g"].item_ids if i not in alone.item_ids}
    off, ratio = distance(poor, known, set(alone.item_ids))
    assert off < 0.2
    assert ratio == pytest.approx(1.0, abs=0.03)
    off, ratio = distance(poor, known, only_there)
    assert off < 0.7
    assert 1.1 < ratio < 1.3, "less is known of them"


def test_draws_of_items_of_another_form_are_their_own(known_and_not):
    poor = known_and_not[2]
    g, draws = poor.groups["g"], poor.joint["g"]
    np.testing.assert_allclose((draws.mean(axis=0) - g.mean) / g.sd, 0.0, atol=0.35)
    np.testing.assert_allclose((draws.std(axis=0) / g.sd).mean(), 1.0, atol=0.05)


def test_periods_without_a_link_find_their_place(world, found):
    """Started from nowhere, placed by the items they share; no item of the last need be in the reference."""
    here = set(world.placed[0].factors.groups["g"].item_ids)
    last = world.placed[2].factors.groups["g"].item_ids
    chain = [world.placed[0], world.placed[1], only(world.placed[2], [j for j, i in enumerate(last) if i not in here])]
    lost = [
        chain[0],
        *(
            changed(p, link_mean=np.zeros((1, 2)), link_covariance=0.01 * np.eye(2)[None], linked=False)
            for p in chain[1:]
        ),
    ]
    got, told = joint(lost), joint(chain)
    gap = got.links["B_mean"].to_numpy() - told.links["B_mean"].to_numpy()
    assert (np.abs(gap[1:]) < 0.4 * told.links["B_sd"].to_numpy()[1:]).all()
    off, _ = distance(got, told)
    assert off < 0.2


def held(placed, links=None):
    """Periods whose links are given, (periods, 2) = (log A, B), and known."""
    at = [p.link_mean for p in placed] if links is None else [link[None] for link in links]
    narrow = 1e-8 * np.eye(2)[None]
    return [replace(p, link_mean=m, link_covariance=narrow, held=True) for p, m in zip(placed, at, strict=True)]


def weaker(placed, half_life):
    """Factors that say what their weight leaves of them."""
    shares = [0.5 ** ((len(placed) - 1 - m) / half_life) for m in range(len(placed))]
    groups = [p.factors.groups["g"] for p in placed]
    return [changed(p, Q=w * g.Q, h=w * g.h) for p, g, w in zip(placed, groups, shares, strict=True)]


FADING = SPEC.model_copy(update={"half_life": 1.0})


def test_half_life_fades_factors(world):
    """At given links the same as factors that say a quarter and half of what they said."""
    placed = held(world.placed)
    off, ratio = distance(joint(placed, FADING), joint(weaker(placed, 1.0)))
    assert off < 0.12
    assert ratio == pytest.approx(1.0, abs=0.03)


def test_links_do_not_fade(world, found):
    assert joint(world.placed, FADING).links.equals(found.links)


def test_faded_items_are_averages_over_the_links(world, found):
    """Law of total variance over draws of the links, at each of which items are found with the links held."""
    links = found.joint_links[:: len(found.joint_links) // 16, :, 0]  # (draws, periods, 2)
    each = [joint(weaker(held(world.placed, link), 1.0)).groups["g"] for link in links[:16]]
    mean = np.mean([g.mean for g in each], axis=0)
    variance = np.mean([g.sd**2 for g in each], axis=0) + np.var([g.mean for g in each], axis=0)
    g = joint(world.placed, FADING).groups["g"]
    assert np.sqrt((((g.mean - mean) / g.sd) ** 2).mean()) < 0.15
    assert (g.sd / np.sqrt(variance)).mean() == pytest.approx(1.0, abs=0.04)


def test_a_short_half_life_keeps_the_metric():
    """The reference, by now 24 periods old, counts next to nothing, and still says where the metric is."""
    world = phi_world(seed=21, n_items=60, n_periods=24, error=(0.1, 0.3), tau=0.01)
    found = joint(world.placed, SPEC.model_copy(update={"half_life": 2.0}))
    assert not [text for text in found.warnings if "sampler" in text]
    g = found.groups["g"]
    off = (g.mean - world.xi[[world.item_ids.index(i) for i in g.item_ids]]) / g.sd
    assert (np.abs(off.mean(axis=0)) < 0.5).all()
    assert g.sd[:, 0].mean() < 0.25, "analytic: .16; .58 when links faded too"


def test_draws_that_are_no_numbers_are_never_converged(world, monkeypatch):
    record = JointTrace.record

    def broken(self, state):
        record(self, state)
        self.governing[-1].links[0, 0, 1, 0] = np.nan

    monkeypatch.setattr(JointTrace, "record", broken)
    monkeypatch.setattr("concal.consensus.joint.sampler.MOST_SWEEPS", 500)
    assert any("R-hat inf" in text for text in joint(world.placed).warnings)


def test_sets_without_a_common_item_are_refused(world):
    placed = [only(world.placed[0], range(10)), replace(world.placed[1], linked=False)]
    here = set(placed[0].factors.groups["g"].item_ids)
    other = [j for j, i in enumerate(placed[1].factors.groups["g"].item_ids) if i not in here]
    with pytest.raises(LinkError, match="sets without a common item"):
        joint([placed[0], replace(only(placed[1], other), linked=False)])


def test_progress_goes_up(world):
    told = []
    joint(world.placed[:2], progress=lambda share, text: told.append(share))
    assert told == sorted(told)
    assert 0 < told[0] < told[-1] <= 1


@pytest.fixture(scope="module")
def drifted():
    """80 items in three periods; a fifth of the last one's became harder by 1.2."""
    moved = {(2, j): 1.2 for j in range(0, 80, 5)}
    return phi_world(seed=31, n_items=80, share=1.0, error=(0.05, 0.15), drift=moved, tau=0.01)


@pytest.fixture(scope="module")
def plain_and_robust(drifted):
    return joint(drifted.placed, SPEC.model_copy(update={"robust_links": False})), joint(drifted.placed)


def test_protected_links_are_pulled_less_by_drifting_items(drifted, plain_and_robust):
    """A fifth of the items off by 1.2 pull the period's plain link along, the protected one less."""
    plain, robust = plain_and_robust
    off = [abs(c.links["B_mean"][2] - drifted.links[2, 1]) for c in (plain, robust)]
    assert off[0] > 0.1
    assert off[1] < 0.7 * off[0]
    assert any("(robust_links)" in w for w in robust.warnings)
    assert not any("robust_links" in w for w in plain.warnings)


def test_protection_leaves_the_other_links_where_they_were(drifted, plain_and_robust):
    """Items that drifted later must not pull the link of the period that saw them where they were."""
    off = [abs(c.links["B_mean"][1] - drifted.links[1, 1]) for c in plain_and_robust]
    assert off[0] < 0.05
    assert off[1] < 0.05


def test_protection_loses_nothing_where_nothing_drifts(world, found):
    plain = joint(world.placed, SPEC.model_copy(update={"robust_links": False}))
    off, ratio = distance(found, plain)
    assert off < 0.15
    assert ratio == pytest.approx(1.0, abs=0.03)
    np.testing.assert_allclose(found.links["B_sd"][1:] / plain.links["B_sd"][1:], 1.0, atol=0.2)
