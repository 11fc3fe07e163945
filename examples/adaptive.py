"""Adaptive tests on a released bank: catsim, adaptivetesting, and a loop that samples item parameters as it selects.

Two banks of the same 150 items: a young one (20 responses an item) and an old one (160). Simulated examinees answer at
the true parameters; the clients know the release. Prints and writes (adaptive.csv) bias and RMSE of the final scores by
true ability, for point, soft and draw scoring.

    pip install catsim adaptivetesting
    python examples/adaptive.py [--examinees 60]
"""

import argparse

import numpy as np
import polars as pl
from adaptivetesting.implementations import TestAssembler
from adaptivetesting.math.estimators import ExpectedAPosteriori, NormalPrior
from adaptivetesting.models import ItemPool
from catsim import ItemBank
from catsim.selection import MaxInfoSelector

import concal

N_ITEMS, LENGTH = 150, 15
SPEC = concal.Spec.parse(
    {"bank": {"dimensions": ["ability"]}, "groups": {"item": {"model": "2pl", "dimension": "ability"}}}
)


def responses(truth, theta, per_person, rng):
    """A response table: everybody answers some items at random."""
    n = theta.size
    item = np.argsort(rng.random((n, N_ITEMS)), axis=1)[:, :per_person]
    p = 1 / (1 + np.exp(-truth["a"][item] * (theta[:, None] - truth["b"][item])))
    return pl.DataFrame(
        {
            "person_id": np.repeat([f"p{i}" for i in range(n)], per_person),
            "item_id": [f"i{j:03d}" for j in item.ravel()],
            "score": (rng.random(p.shape) < p).astype(float).ravel(),
        }
    )


def make_release(name, truth, n_examinees, rng):
    """Calibrate a bank from that many examinees with 30 responses each, and release it."""
    bank = concal.Bank.create(f"bank-{name}", SPEC)
    items = pl.DataFrame({"item_id": [f"i{j:03d}" for j in range(N_ITEMS)], "group": "item"})
    bank.add("2026Q1", responses(truth, rng.standard_normal(n_examinees), 30, rng), items)
    bank.release("live")
    return bank.at("live")


def catsim_test(exported, answers, scorer):
    """catsim picks the items (maximum information); our scorer estimates after each."""
    bank = ItemBank(exported.select("a", "b", "c", "d").to_numpy())
    ids, given, selector = exported["item_id"].to_list(), {}, MaxInfoSelector()
    while len(given) < LENGTH:
        seen = [ids.index(item) for item in given]
        theta = scorer.score(given).theta["ability"]
        item = ids[selector.select(item_bank=bank, administered_items=seen, est_theta=theta)]
        given[item] = answers[item]
    return given


def adaptivetesting_test(exported, answers, _):
    """A whole test by adaptivetesting, which picks and estimates by itself."""
    ids = exported["item_id"].to_list()
    columns = {name: exported[name].to_list() for name in ("a", "b", "c", "d")}
    pool = ItemPool.load_from_dict(
        columns, simulated_responses=[int(answers[i]) for i in ids], ids=list(range(len(ids)))
    )
    test = TestAssembler(
        pool, "example", "someone", ExpectedAPosteriori,
        {"prior": NormalPrior(0, 1), "optimization_interval": (-6, 6)}, true_ability_level=0.0,
    )  # fmt: skip
    for _ in range(LENGTH):
        test.run_test_once()
    picked = [item.id for item in test.answered_items]
    return {ids[k]: float(y) for k, y in zip(picked, test.response_pattern, strict=True)}


def thompson_test(draws, answers, scorer, rng):
    """Each step takes one draw of all items from the bank's posterior and picks the best of them under it.

    Items that are not well known are tried now and then, instead of those whose slope happens to be overestimated
    being picked for everybody.
    """
    given, ids = {}, [f"i{j:03d}" for j in range(N_ITEMS)]
    while len(given) < LENGTH:
        theta = scorer.score(given).theta["ability"]
        d, a = draws[rng.integers(draws.shape[0])].T
        p = 1 / (1 + np.exp(-np.exp(a) * (theta - d)))
        information = np.exp(2 * a) * p * (1 - p)
        information[[ids.index(item) for item in given]] = -1
        item = ids[int(np.argmax(information))]
        given[item] = answers[item]
    return given


def main():
    """Make both banks, run the three clients on each, and compare the scores with the truth."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--examinees", type=int, default=24)
    n = parser.parse_args().examinees
    rng = np.random.default_rng(1)
    truth = {"a": np.exp(rng.normal(0, 0.3, N_ITEMS)), "b": rng.normal(0, 1, N_ITEMS)}
    theta = np.linspace(-2, 2, n)
    p = 1 / (1 + np.exp(-truth["a"] * (theta[:, None] - truth["b"])))
    right = rng.random(p.shape) < p
    rows = []
    for age, n_examinees in (("young", 100), ("old", 800)):
        release = make_release(age, truth, n_examinees, rng)
        release.export(f"{age}.csv", format="catsim")
        exported = pl.read_csv(f"{age}.csv")
        scorer = release.scorer(items="soft")
        draws = release.scoring().items.groups[0].draws
        for client in ("catsim", "adaptivetesting", "thompson"):
            tests = []
            for i in range(n):
                answers = {f"i{j:03d}": float(right[i, j]) for j in range(N_ITEMS)}
                if client == "thompson":
                    given = thompson_test(draws, answers, scorer, rng)
                else:
                    given = {"catsim": catsim_test, "adaptivetesting": adaptivetesting_test}[client](
                        exported, answers, scorer
                    )
                tests += [{"person_id": f"{i:04d}", "item_id": k, "score": v} for k, v in given.items()]
            for level in ("mean", "soft", "draws"):
                scores = release.score(pl.DataFrame(tests), items=level)
                error = scores["theta_ability"].to_numpy() - theta
                for low, high in ((-2, -1), (-1, 1), (1, 2)):
                    own = (theta >= low) & (theta <= high)
                    rows.append(
                        {
                            "bank": age, "client": client, "items": level, "theta": f"{low} to {high}",
                            "bias": error[own].mean(), "rmse": np.sqrt((error[own] ** 2).mean()),
                            "mean_se": scores["se_ability"].to_numpy()[own].mean(),
                        }
                    )  # fmt: skip
    table = pl.DataFrame(rows)
    table.write_csv("adaptive.csv")
    with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=3):
        print(table)


if __name__ == "__main__":
    main()
