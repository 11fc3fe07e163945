"""Adaptive tests on a released bank: catsim, adaptivetesting, and a loop that samples item parameters as it selects.

Programmes of 150 items, each with a young bank (20 responses an item) and an old one (160). Simulated examinees answer
at the true parameters; the clients know the release. Prints, and writes (adaptive.csv), bias and RMSE of the final
scores and the share of 90 % intervals that hold the true ability, by true ability, for point, soft and draw scoring.
Banks differ more than examinees do, so the standard errors of bias and RMSE are taken over programmes.

    pip install catsim adaptivetesting
    python examples/adaptive.py [--programmes 10] [--examinees 100]
"""

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from adaptivetesting.implementations import TestAssembler
from adaptivetesting.math.estimators import BayesModal, NormalPrior
from adaptivetesting.models import ItemPool
from catsim import ItemBank
from catsim.selection import MaxInfoSelector

import concal

N_ITEMS, LENGTH = 150, 15
IDS = [f"i{j:03d}" for j in range(N_ITEMS)]
SPEC = concal.Spec.parse(
    {"bank": {"dimensions": ["ability"]}, "groups": {"item": {"model": "2pl", "dimension": "ability"}}}
)
AGES = {"young": 100, "old": 800}  # examinees with 30 responses each
BANDS = {"-2 to -1": (-2, -1), "-1 to 1": (-1, 1), "1 to 2": (1, 2)}


def chances(truth, theta):
    """Probabilities of right answers, (examinees, items)."""
    return 1 / (1 + np.exp(-truth["a"] * (theta[:, None] - truth["b"])))


def make_release(folder, truth, n_examinees, rng):
    """Calibrate a bank from that many examinees with 30 random items each, and release it."""
    item = np.argsort(rng.random((n_examinees, N_ITEMS)), axis=1)[:, :30]
    p = np.take_along_axis(chances(truth, rng.standard_normal(n_examinees)), item, axis=1)
    responses = pl.DataFrame(
        {
            "person_id": np.repeat([f"p{i}" for i in range(n_examinees)], 30),
            "item_id": [IDS[j] for j in item.ravel()],
            "score": (rng.random(p.shape) < p).astype(float).ravel(),
        }
    )
    bank = concal.Bank.create(folder / "bank", SPEC)
    bank.add("2026Q1", responses, pl.DataFrame({"item_id": IDS, "group": "item"}), accept_unconverged=True)
    bank.release("live")
    return bank.at("live")


def catsim_tests(release, folder):
    """catsim picks the items (maximum information); our scorer estimates after each."""
    release.export(folder / "catsim.csv", format="catsim")
    exported, scorer, selector = pl.read_csv(folder / "catsim.csv"), release.scorer(), MaxInfoSelector()
    bank, ids = ItemBank(exported.select("a", "b", "c", "d").to_numpy()), exported["item_id"].to_list()

    def test(answers):
        given, seen = {}, []
        while len(given) < LENGTH:
            theta = scorer.score(given).theta["ability"]
            seen.append(selector.select(item_bank=bank, administered_items=seen, est_theta=theta))
            given[ids[seen[-1]]] = answers[ids[seen[-1]]]
        return given

    return test


def adaptivetesting_tests(release, folder):
    """A whole test by adaptivetesting, which picks and estimates (the posterior's mode) by itself."""
    release.export(folder / "adaptivetesting.csv", format="catsim")
    exported = pl.read_csv(folder / "adaptivetesting.csv")
    columns, ids = {name: exported[name].to_list() for name in ("a", "b", "c", "d")}, exported["item_id"].to_list()
    estimator = {"prior": NormalPrior(0, 1), "optimization_interval": (-6, 6)}

    def test(answers):
        right = [int(answers[i]) for i in ids]
        pool = ItemPool.load_from_dict(columns, simulated_responses=right, ids=list(range(len(ids))))
        run = TestAssembler(pool, "example", "someone", BayesModal, estimator, true_ability_level=0.0)
        for _ in range(LENGTH):
            run.run_test_once()
        answered = zip(run.answered_items, run.response_pattern, strict=True)
        return {ids[item.id]: float(y) for item, y in answered}

    return test


def thompson_tests(release, folder):
    """Each step takes one draw of all items from the bank's posterior and picks the best of them under it.

    Items that are not well known are tried now and then, instead of those whose slope happens to be overestimated
    being picked for everybody.
    """
    scorer, rng = release.scorer(), np.random.default_rng(7)
    draws = release.draws(IDS)["xi"].values[0]  # (draws, items, parameters)

    def test(answers):
        given, left = {}, np.ones(N_ITEMS, dtype=bool)
        while len(given) < LENGTH:
            theta = scorer.score(given).theta["ability"]
            d, log_a = draws[rng.integers(draws.shape[0])].T
            p = 1 / (1 + np.exp(-np.exp(log_a) * (theta - d)))
            best = int(np.argmax(np.where(left, np.exp(2 * log_a) * p * (1 - p), -1.0)))
            left[best], given[IDS[best]] = False, answers[IDS[best]]
        return given

    return test


CLIENTS = {"catsim": catsim_tests, "adaptivetesting": adaptivetesting_tests, "thompson": thompson_tests}


def programme_rows(programme, n, folder):
    """Both banks, the three clients on each: a row per client, level of item uncertainty and band of true ability."""
    rng = np.random.default_rng(programme)
    truth = {"a": np.exp(rng.normal(0, 0.3, N_ITEMS)), "b": rng.normal(0, 1, N_ITEMS)}
    theta = np.linspace(-2, 2, n)
    right = (rng.random((n, N_ITEMS)) < chances(truth, theta)).astype(float)
    everybody = [dict(zip(IDS, row.tolist(), strict=True)) for row in right]
    for age, n_examinees in AGES.items():
        own = Path(folder, f"{programme}-{age}")
        own.mkdir()
        release = make_release(own, truth, n_examinees, rng)
        for client, made in CLIENTS.items():
            test = made(release, own)
            tests = [(f"{i:06d}", k, y) for i, answers in enumerate(everybody) for k, y in test(answers).items()]
            table = pl.DataFrame(tests, schema=["person_id", "item_id", "score"], orient="row")
            for level in ("mean", "soft", "draws"):
                scores = release.score(table, items=level)
                error, se = scores["theta_ability"].to_numpy() - theta, scores["se_ability"].to_numpy()
                for band, (low, high) in BANDS.items():
                    e, s = (x[(theta >= low) & (theta <= high)] for x in (error, se))
                    yield {
                        "programme": programme, "bank": age, "client": client, "items": level, "theta": band,
                        "bias": e.mean(), "rmse": np.sqrt((e**2).mean()), "covered": (np.abs(e) < 1.6449 * s).mean(),
                    }  # fmt: skip


def summary(rows):
    """Means over programmes with their standard errors."""
    key = ["bank", "client", "items", "theta"]
    n = rows["programme"].n_unique()
    figures = ("bias", "rmse", "covered")
    errors = [(pl.col(f).std() / math.sqrt(n)).alias(f"{f}_se") for f in figures]
    return rows.group_by(key, maintain_order=True).agg(*(pl.col(f).mean() for f in figures), *errors)


def main():
    """Programme after programme, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programmes", type=int, default=1)
    parser.add_argument("--examinees", type=int, default=100)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for programme in range(given.programmes):
            rows += programme_rows(programme, given.examinees, folder)
            table = summary(pl.DataFrame(rows))
            table.write_csv("adaptive.csv")
            print(f"{programme + 1} of {given.programmes} programmes done", flush=True)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=120, float_precision=3):
        print(table)


if __name__ == "__main__":
    main()
