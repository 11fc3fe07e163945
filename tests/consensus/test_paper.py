"""The published method against plain loops, and what it must and must not do."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from gaussian_worlds import calibration_from, constant_link, fixed_prior_pairs, gibbs, make_world, sampled_period
from scipy import optimize

from concal.calibration.state import PINNED
from concal.consensus.gaussian import from_log_cholesky
from concal.consensus.paper import combine_paper, log_cholesky
from concal.errors import DataError, LinkError
from concal.linking.period import link as link_period
from concal.linking.period import partners
from concal.response import make_model
from concal.spec import ConsensusSpec, LinkingSpec

SPEC = ConsensusSpec(method="paper", paper_draws=80)
TAU = 0.01


def moved_link(period, n_draws, seed):
    """A link that varies over draws, for some of the period's draws."""
    rng = np.random.default_rng(seed)
    index = np.sort(rng.choice(n_draws, 150, replace=False))
    link = constant_link(period, 150)
    A = link.A * np.exp(rng.normal(size=link.A.shape) * 0.05)
    return replace(link, A=A, B=link.B + 0.05 * rng.normal(size=link.B.shape), draw_index=index)


def merged(*calibrations):
    """One period with the groups of several."""
    groups = {name: g for c in calibrations for name, g in c.groups.items()}
    priors = {name: v for c in calibrations for name, v in c.beta_prior_precision.items()}
    return replace(calibrations[0], groups=groups, beta_prior_precision=priors)


def renamed(calibration, name):
    (group,) = calibration.groups.values()
    (prior,) = calibration.beta_prior_precision.values()
    ids = tuple(f"{name}-{i}" for i in group.item_ids)
    group = replace(group, name=name, item_ids=ids, xi=group.xi.astype(np.float32))
    return replace(calibration, groups={name: group}, beta_prior_precision={name: prior})


@pytest.fixture(scope="module")
def programme():
    """Three periods, a 2pl and a gpcm group with features; items enter and leave; one item is never answered."""
    words = make_world(seed=31, n_items=25, links=True, share=0.6)
    essays = make_world(seed=32, n_items=18, links=True, share=0.7, model="gpcm", categories=4)
    pairs = []
    for m, (one, other) in enumerate(zip(words.periods, essays.periods, strict=True)):
        other = replace(other, A=one.A, B=one.B)
        both = merged(
            renamed(sampled_period(words, one, 200, seed=m), "words"),
            renamed(sampled_period(essays, other, 200, seed=10 + m), "essays"),
        )
        pairs.append((both, moved_link(one, 200, m) if m else None))
    never = pairs[0][0].groups["words"].item_ids[0]
    out = []
    for calibration, link in pairs:
        group = calibration.groups["words"]
        n = np.array([0 if item == never else 50 + j for j, item in enumerate(group.item_ids)])
        out.append((replace(calibration, groups={**calibration.groups, "words": replace(group, n_responses=n)}), link))
    return out


# an independent implementation, one item and one draw at a time


def slow_period(calibration, link, wanted):
    draws = [(s, 1.0, 0.0) for s in range(calibration.n_draws)]
    if link is not None:
        rows = [k * len(link.A) // wanted for k in range(wanted)] if len(link.A) > wanted else range(len(link.A))
        draws = [(link.draw_index[r], link.A[r, 0], link.B[r, 0]) for r in rows]
    out = {}
    for name, group in calibration.groups.items():
        F, p = len(group.features), len(group.model.parameters)
        xi = group.xi.reshape(-1, group.n_items, p).astype(float)
        beta, sigma = group.beta.reshape(-1, F, p), group.sigma.reshape(-1, p, p)
        items, flat, coordinates = {}, [], []
        for j, item in enumerate(group.item_ids):
            if group.n_responses[j] == 0:
                continue
            x, predictions, spreads = [], [], []
            for s, A, B in draws:
                D, t = np.diag([A] + [1.0] * (p - 1)), np.array([B, -np.log(A)] + [0.0] * (p - 2))
                x.append(D @ xi[s, j] + t)
                predictions.append(D @ (beta[s].T @ group.X[j]) + t)
                spreads.append(D @ sigma[s] @ D)
            prior = np.mean(spreads, axis=0) + np.cov(np.transpose(predictions))
            items[item] = (np.mean(x, axis=0), np.cov(np.transpose(x)), np.mean(predictions, axis=0), prior)
        for s, A, B in draws:
            b = beta[s].copy()
            for f in range(F):
                b[f, 0] = A * b[f, 0] + (B if f == 0 else 0.0)
            b[0, 1] -= np.log(A)
            flat.append([b[f, k] for f in range(F) for k in range(p)])
            L = np.linalg.cholesky(np.diag([A] + [1.0] * (p - 1)) @ sigma[s] @ np.diag([A] + [1.0] * (p - 1)))
            coordinates.append([np.log(L[i, i]) if i == k else L[i, k] for i in range(p) for k in range(i + 1)])
        out[name] = (items, np.mean(flat, axis=0), np.cov(np.transpose(flat)), np.mean(coordinates, axis=0), group)
    return out


def slow_group(periods, weights, model):
    """Item -> (mean, covariance, source), beta*, Sigma*."""
    F, p = len(periods[0][4].features), len(model.parameters)
    T = TAU * np.kron(np.eye(F), np.diag(np.array(model.prior.sd) ** -2.0))
    pull = T @ [*model.prior.mean, *[0.0] * ((F - 1) * p)]
    precision, shift = T.copy(), pull.copy()
    coordinates, count = np.zeros(p * (p + 1) // 2), 0.0
    for w, (items, b, V, psi, _) in zip(weights, periods, strict=True):
        precision += w * (np.linalg.inv(V) - T)
        shift += w * (np.linalg.solve(V, b) - pull)
        coordinates += w * len(items) * psi
        count += w * len(items)
    beta = np.linalg.solve(precision, shift).reshape(F, p)
    L, values = np.zeros((p, p)), iter(coordinates / count)
    for i in range(p):
        for k in range(i + 1):
            L[i, k] = next(values)
        L[i, i] = np.exp(L[i, i])
    sigma = L @ L.T
    rows = {item: g.X[j] for *_, g in periods for j, item in enumerate(g.item_ids)}
    out = {}
    for item, x in rows.items():
        total, pull, seen = np.linalg.inv(sigma), np.linalg.solve(sigma, beta.T @ x), False
        for w, (items, *_) in zip(weights, periods, strict=True):
            if item in items:
                mu, C, m, S = items[item]
                total = total + w * (np.linalg.inv(C) - np.linalg.inv(S))
                pull = pull + w * (np.linalg.solve(C, mu) - np.linalg.solve(S, m))
                seen = True
        if not seen:
            out[item] = beta.T @ x, sigma, "predicted"
        elif np.linalg.eigvalsh(total)[0] <= 0:
            out[item] = beta.T @ x, sigma, "fallback"
        else:
            out[item] = np.linalg.solve(total, pull), np.linalg.inv(total), "consensus"
    return out, beta, sigma


def assert_equal_groups(one, other, tolerance=1e-9):
    place = {item: j for j, item in enumerate(other.item_ids)}
    assert set(one.item_ids) == set(place)
    order = [place[item] for item in one.item_ids]
    np.testing.assert_array_equal(one.source, other.source[order])
    np.testing.assert_array_equal(one.n_responses, other.n_responses[order])
    np.testing.assert_allclose(one.mean, other.mean[order], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(one.covariance, other.covariance[order], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("half_life", [None, 1.5])
def test_plain_loops_agree(programme, half_life):
    got = combine_paper(iter(programme), SPEC.model_copy(update={"half_life": half_life}))
    assert (got.method, got.reference, got.periods) == ("paper", "P1", ("P1", "P2", "P3"))
    slow = [slow_period(c, link, 80) for c, link in programme]
    weights = [1.0, 1.0, 1.0] if half_life is None else [0.5 ** (2 / 1.5), 0.5 ** (1 / 1.5), 1.0]
    sources = set()
    for name, group in got.groups.items():
        expected, beta, sigma = slow_group([s[name] for s in slow], weights, group.model)
        assert set(group.item_ids) == set(expected)
        np.testing.assert_allclose(group.beta, beta, atol=1e-7)
        np.testing.assert_allclose(group.sigma, sigma, atol=1e-7)
        for j, item in enumerate(group.item_ids):
            mean, covariance, source = expected[item]
            assert group.source[j] == source
            sources.add(source)
            np.testing.assert_allclose(group.mean[j], mean, rtol=1e-7, atol=1e-7)
            np.testing.assert_allclose(group.covariance[j], covariance, rtol=1e-7, atol=1e-7)
    assert {"consensus", "predicted"} <= sources


def test_link_table_has_plain_moments_of_the_draws_used(programme):
    table = combine_paper(programme, SPEC).links
    assert table.columns == ["period", "dimension", "A_mean", "A_sd", "B_mean", "B_sd"]
    assert table.row(0)[2:] == (1.0, 0.0, 0.0, 0.0)
    link = programme[1][1]
    rows = np.arange(80) * 150 // 80
    A, B = link.A[rows, 0], link.B[rows, 0]
    assert table.row(1)[2:] == pytest.approx((A.mean(), A.std(ddof=1), B.mean(), B.std(ddof=1)))


def test_the_reference_uses_all_its_draws_and_others_those_asked_for(programme):
    marked = replace(constant_link(make_world().periods[0], 40), draw_index=np.arange(40))
    as_link = combine_paper([(programme[0][0], marked), *programme[1:]], SPEC)
    plain = combine_paper(programme, SPEC)
    fewer = combine_paper(programme, ConsensusSpec(paper_draws=60))
    assert_equal_groups(as_link.groups["words"], plain.groups["words"])
    assert np.abs(fewer.groups["words"].mean - plain.groups["words"].mean).max() > 1e-4


def test_order_of_periods_does_not_matter(programme):
    one, other = combine_paper(programme, SPEC), combine_paper(programme[::-1], SPEC)
    for name in one.groups:
        assert_equal_groups(one.groups[name], other.groups[name])
    faded = [combine_paper(p, SPEC.model_copy(update={"half_life": 1.0})) for p in (programme, programme[::-1])]
    assert np.abs(faded[0].groups["words"].mean[:3] - faded[1].groups["words"].mean[:3]).max() > 1e-3


def test_one_period_alone(programme):
    """Under a fixed population it is given back; under an estimated one but for the plug-in replacement prior."""
    world = make_world(seed=4, n_items=12)
    ((calibration, _), *_) = fixed_prior_pairs(world)
    got = combine_paper([(calibration, None)], SPEC).groups["g"]
    xi = calibration.groups["g"].flat("xi")
    np.testing.assert_allclose(got.mean, xi.mean(axis=0), atol=1e-8)
    for j in range(xi.shape[1]):
        np.testing.assert_allclose(got.covariance[j], np.cov(xi[:, j].T), rtol=1e-7)
    words = programme[0][0].groups["words"]
    got = combine_paper(programme[:1], SPEC).groups["words"]
    ratio = (got.sd / words.flat("xi").std(axis=0, ddof=1))[got.source == "consensus"]
    assert ratio.mean() < 1.0  # the plug-in prior knows no uncertainty of the population
    assert ratio.max() < 1.05


def with_equal_slopes(calibration):
    """The period as if its group had one slope: that of the population's intercept."""
    group = calibration.groups["g"]
    xi, beta, sigma = group.xi.copy(), group.beta.copy(), group.sigma.copy()
    xi[..., 1] = beta[:, :, None, 0, 1]
    beta[:, :, 1:, 1] = 0.0
    sigma[..., 0, 1] = sigma[..., 1, 0] = 0.0
    sigma[..., 1, 1] = PINNED
    group = replace(group, model=make_model("1pl", None), xi=xi, beta=beta, beta_mean=None, sigma=sigma)
    return replace(calibration, groups={"g": group})


def test_equal_slopes_have_no_coefficients_of_features():
    """The product runs over what exists; where there is one period it gives that period's coefficients back."""
    world = make_world(seed=4, n_items=30, n_features=3)
    periods = [with_equal_slopes(sampled_period(world, p, 400, seed=m)) for m, p in enumerate(world.periods[:2])]
    for given in (periods[:1], periods):
        pairs = [
            (c, constant_link(p, 400) if m else None)
            for m, (c, p) in enumerate(zip(given, world.periods, strict=False))
        ]
        got = combine_paper(pairs, SPEC).groups["g"]
        assert not got.beta[1:, 1].any()
        exist = np.array([0, 1, 2, 4])
        assert np.linalg.eigvalsh(got.beta_covariance[np.ix_(exist, exist)]).min() > 0
        assert not np.delete(got.beta_covariance, exist, axis=0).any()
        if len(given) == 1:
            beta = given[0].groups["g"].flat("beta").reshape(400, -1)[:, exist]
            np.testing.assert_allclose(got.beta.ravel()[exist], beta.mean(axis=0), rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(got.beta_covariance[np.ix_(exist, exist)], np.cov(beta.T), rtol=1e-6, atol=1e-12)


def test_equal_fixed_priors_are_the_committee_machine():
    world = make_world(seed=6, n_items=10, share=1.0)
    pairs = fixed_prior_pairs(world, 60)
    got = combine_paper([(c, link if m else None) for m, (c, link) in enumerate(pairs)], SPEC).groups["g"]
    for j in range(10):
        periods = [np.linalg.inv(np.cov(c.groups["g"].flat("xi")[:, j].T)) for c, _ in pairs]
        total = sum(periods) - 2 * np.linalg.inv(world.sigma)
        np.testing.assert_allclose(np.linalg.inv(got.covariance[j]), total, rtol=1e-6, atol=1e-6)


def test_new_items_are_predicted(programme):
    X = np.array([[1.0, 0.3], [1.0, -2.0]])
    got = combine_paper(programme, SPEC, items={"words": (["new-1", "new-2"], X), "songs": (["s"], X[:1])})
    group = got.groups["words"]
    rows = [group.item_ids.index(i) for i in ("new-1", "new-2")]
    assert (group.source[rows] == "predicted").all()
    np.testing.assert_allclose(group.mean[rows], X @ group.beta)
    np.testing.assert_allclose(group.covariance[rows], [group.sigma] * 2)
    assert any("'songs' is left out" in w for w in got.warnings)
    with pytest.raises(DataError, match=r"'new-1'.*shape \(1, 2\)"):
        combine_paper(programme, SPEC, items={"words": (["new-1"], X)})


def test_items_not_identified_fall_back(programme):
    """Draws wider than the prior in every period: more prior is taken out than there was, Lambda_c is negative."""
    item = next(i for i in programme[0][0].groups["essays"].item_ids if all(i in c.group_of() for c, _ in programme))
    wide = []
    for calibration, link in programme:
        group = calibration.groups["essays"]
        j, xi = group.item_ids.index(item), group.xi.copy()
        xi[:, :, j] = xi[:, :, j].mean(axis=(0, 1)) + 8.0 * (xi[:, :, j] - xi[:, :, j].mean(axis=(0, 1)))
        wide.append((replace(calibration, groups={"essays": replace(group, xi=xi)}), link))
    got = combine_paper(wide, SPEC)
    group = got.groups["essays"]
    j = group.item_ids.index(item)
    assert group.source[j] == "fallback"
    assert group.n_periods[j] == 3
    np.testing.assert_allclose(group.mean[j], group.X[j] @ group.beta)
    np.testing.assert_allclose(group.covariance[j], group.sigma, rtol=1e-12)
    assert got.fallback_share == pytest.approx((group.source == "fallback").mean())


def test_a_changed_formula_takes_the_periods_predictions(programme):
    """The newest period has another feature: each item's prior is the mean of what its periods predicted for it."""
    newest, link = programme[2]
    words = newest.groups["words"]
    changed = replace(words, features=("1", "length"))
    pairs = [*programme[:2], (replace(newest, groups={"words": changed}), link)]
    got = combine_paper(pairs, SPEC)
    assert any("features or their coding changed" in w for w in got.warnings)
    group = got.groups["words"]
    slow = [slow_period(c, link, 80)["words"] for c, link in pairs]
    checked = 0
    for j, item in enumerate(group.item_ids):
        seen = [items[item] for items, *_ in slow if item in items]
        if group.source[j] != "consensus" or not seen:
            continue
        priors = [np.linalg.inv(S) for *_, S in seen]
        Omega = np.mean(priors, axis=0)
        pull = np.mean([P @ m for P, (_, _, m, _) in zip(priors, seen, strict=True)], axis=0)
        total = Omega + sum(np.linalg.inv(C) - P for P, (_, C, _, _) in zip(priors, seen, strict=True))
        shift = pull + sum(np.linalg.solve(C, mu) - P @ m for P, (mu, C, m, _) in zip(priors, seen, strict=True))
        np.testing.assert_allclose(group.mean[j], np.linalg.solve(total, shift), rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(group.covariance[j], np.linalg.inv(total), rtol=1e-7, atol=1e-9)
        checked += 1
    assert checked > 15
    assert np.isnan(group.X).any()


def test_only_the_newest_scoring_counts(programme):
    """gpcm items scored in three categories now: the four-category periods say nothing comparable."""
    world = make_world(seed=40, n_items=18, share=0.7, model="gpcm", categories=3, links=True)
    period = replace(world.periods[2], A=programme[2][1].A.mean(), B=0.1)
    ids, draws = gibbs(world, [period], 200, seed=3)
    calibration = calibration_from(world, replace(period, item_ids=ids), draws["xi"], draws["beta"], draws["sigma"])
    rescored = renamed(calibration, "essays")
    link = programme[2][1]
    got = combine_paper([*programme[:2], (rescored, link)], SPEC)
    alone = combine_paper([(rescored, link)], SPEC)
    assert any("only the newest scoring counts" in w for w in got.warnings)
    one, other = got.groups["essays"], alone.groups["essays"]
    rows = [one.item_ids.index(item) for item in other.item_ids]
    np.testing.assert_allclose(one.mean[rows], other.mean, atol=1e-12)
    rest = np.setdiff1d(np.arange(len(one.item_ids)), rows)
    assert rest.size
    assert (one.source[rest] == "predicted").all()


def test_a_tiny_half_life_leaves_the_newest_period(programme):
    with np.errstate(all="raise", under="ignore"):
        got = combine_paper(programme, SPEC.model_copy(update={"half_life": 0.01}))
    alone = combine_paper([programme[2]], SPEC)
    one, other = got.groups["words"], alone.groups["words"]
    rows = [one.item_ids.index(item) for item in other.item_ids]
    np.testing.assert_allclose(one.mean[rows], other.mean, atol=1e-9)


def test_what_the_method_does_not_know_is_refused(programme):
    calibration, link = programme[1]
    words = calibration.groups["words"]
    n, p = words.n_items, 2
    told = replace(words, guide_mean=np.zeros((n, p)), guide_covariance=np.tile(np.eye(p), (n, 1, 1)))
    with pytest.raises(DataError, match=r"(?s)'P2'.*priors from the bank.*\"joint\" or \"analytic\""):
        combine_paper([programme[0], (replace(calibration, groups={"words": told}), link)], SPEC)
    many = 60
    wide = replace(
        words,
        features=tuple(f"f{k}" for k in range(many)),
        X=np.ones((n, many)),
        beta=np.zeros((*words.beta.shape[:2], many, p)),
    )
    with pytest.raises(DataError, match=r"80 linked draws.*120 coefficients.*paper_draws"):
        combine_paper([programme[0], (replace(calibration, groups={"words": wide}), link)], SPEC)
    bad = words.xi.copy()
    bad[0, 0, 2, 0] = np.nan
    with pytest.raises(DataError, match=words.item_ids[2]):
        combine_paper([(replace(calibration, groups={"words": replace(words, xi=bad)}), link)], SPEC)
    for name in ("beta", "sigma"):
        bad = getattr(words, name).copy()
        bad[1, 3, 0, 0] = np.nan
        with pytest.raises(DataError, match="population model"):
            combine_paper([(replace(calibration, groups={"words": replace(words, **{name: bad})}), link)], SPEC)
    with pytest.raises(LinkError, match="same reference"):
        combine_paper([programme[0], (calibration, None)], SPEC)
    with pytest.raises(LinkError, match="its own link"):
        combine_paper([programme[0], (calibration, programme[2][1])], SPEC)
    with pytest.raises(DataError, match="more than once"):
        combine_paper([programme[0], programme[0]], SPEC)
    with pytest.raises(DataError, match="no period"):
        combine_paper([], SPEC)


def test_draws_of_a_period_are_let_go(programme):
    import gc
    import weakref

    seen = []

    def lazily():
        for calibration, link in programme:
            copy = replace(calibration, groups=dict(calibration.groups))
            gc.collect()
            assert all(ref() is None for ref in seen)
            seen.append(weakref.ref(copy))
            yield (copy, link)
            del copy

    combine_paper(lazily(), SPEC)
    assert len(seen) == 3


def test_log_cholesky_coordinates_return():
    rng = np.random.default_rng(1)
    for p in (1, 2, 4):
        root = rng.normal(size=(5, p, p)) + 2 * np.eye(p)
        sigma = root @ root.transpose(0, 2, 1)
        psi = log_cholesky(sigma)
        assert psi.shape == (5, p * (p + 1) // 2)
        np.testing.assert_allclose([from_log_cholesky(x, p) for x in psi], sigma, rtol=1e-9)
        # the determinant of the mean is the geometric mean of the determinants
        middle = from_log_cholesky(psi.mean(axis=0), p)
        assert np.linalg.slogdet(middle)[1] == pytest.approx(np.linalg.slogdet(sigma)[1].mean())


# the paper's linking, its open conventions one way and the other


def slow_link(foc, ref, draws, *, weights, purify_of):
    """(A, B) of some draws by a derivative-free minimum of the robust Haebara criterion, anchors screened by hand."""
    (a,), (b,) = ref.groups.values(), foc.groups.values()
    common = sorted(set(a.item_ids) & set(b.item_ids))
    i, j = [a.item_ids.index(k) for k in common], [b.item_ids.index(k) for k in common]
    y, x = a.flat("xi")[:, i, 0].mean(axis=0), b.flat("xi")[:, j, 0].mean(axis=0)
    kept = list(range(len(common)))
    for _ in range(5):
        A = np.std(y[kept]) / np.std(x[kept])
        residual = {k: abs(y[k] - y[kept].mean() - A * (x[k] - x[kept].mean())) for k in kept}
        n_out = len(common) / 10 if purify_of == "all" else len(kept) / 10
        limit = np.quantile(list(residual.values()), 1 - n_out / len(kept))
        left = [k for k in kept if residual[k] <= limit]
        if len(left) < 10:
            break
        kept = left
    n_ref, n_foc = a.n_responses[i][kept].astype(float), b.n_responses[j][kept].astype(float)
    omega = n_ref + n_foc if weights == "counts" else n_ref * n_foc / (n_ref + n_foc)
    t = np.linspace(-6, 6, 61)
    w = np.exp(-0.5 * t * t)

    def curve(theta, xi):
        return 1 / (1 + np.exp(-np.exp(xi[:, 1:2]) * (theta - xi[:, :1])))

    out = []
    met = partners(np.arange(foc.n_draws), ref.n_draws)
    for s in draws:
        theirs, ours = a.flat("xi")[met[s]][i][kept], b.flat("xi")[s][j][kept]

        def criterion(v, theirs=theirs, ours=ours):
            D = curve(t, theirs) - curve((t - v[1]) / np.exp(v[0]), ours)
            return omega @ (np.sqrt(D**2 + 0.05**2) - 0.05) @ w / omega.sum() / w.sum()

        best = optimize.minimize(criterion, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
        out.append((np.exp(best.x[0]), best.x[1]))
    return np.array(out), {common[k] for k in kept}


@pytest.fixture(scope="module")
def two_noisy_periods():
    world = make_world(seed=50, n_items=60, n_periods=2, links=True, share=0.9, error=(0.2, 0.8))
    rng = np.random.default_rng(5)
    out = []
    for m, period in enumerate(world.periods):
        calibration = renamed(sampled_period(world, period, 60, seed=m), "g")
        group = calibration.groups["g"]
        n = rng.integers(5, 500, group.n_items)
        out.append(replace(calibration, groups={"g": replace(group, n_responses=n)}))
    return out


@pytest.mark.parametrize("weights", ["harmonic", "counts"])
@pytest.mark.parametrize("purify_of", ["left", "all"])
def test_conventions_of_the_link_reach_the_consensus(two_noisy_periods, weights, purify_of):
    ref, foc = two_noisy_periods
    answer = link_period(foc, ref, spec=LinkingSpec(purify="paper", weights=weights, purify_of=purify_of))
    expected, kept = slow_link(foc, ref, [0, 7, 31], weights=weights, purify_of=purify_of)
    assert set(answer.anchors.filter(pl.col("kept"))["item_id"]) == kept
    np.testing.assert_allclose(answer.A[[0, 7, 31], 0], expected[:, 0], atol=2e-6)
    np.testing.assert_allclose(answer.B[[0, 7, 31], 0], expected[:, 1], atol=2e-6)
    got = combine_paper([(ref, None), (foc, answer)], SPEC)
    other = link_period(foc, ref, spec=LinkingSpec(purify="paper", weights="unit", purify_of=purify_of))
    differs = combine_paper([(ref, None), (foc, other)], SPEC)
    assert np.abs(got.groups["g"].mean - differs.groups["g"].mean).max() > 1e-4
