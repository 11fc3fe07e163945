"""What a response costs in each model: nanoseconds per response and lane, in the passes over examinees and items.

Usage: python benchmarks/response_cost.py [--persons 20000] [--items 2000] [--per-person 30] [--repeat 5]

One thread, CPU time, the best of several repeats; the ratio is to the cheapest model of the table's first row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from concal.calibration.kernels import LANES, item_pass, item_pass_extras, person_pass
from concal.response import ResponseModel, make_model, model_class, model_names

CATEGORIES = 4


def best_seconds(run: Callable[[], None], repeat: int) -> float:
    """CPU seconds of the fastest of several runs, after one that compiles."""
    run()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def costs(model: ResponseModel, n_persons: int, n_items: int, per_person: int, repeat: int) -> tuple[float, float]:
    """Nanoseconds per response and lane of the pass over examinees and of the pass over items."""
    rng = np.random.default_rng(1)
    theta = rng.standard_normal((n_persons, 1, LANES), dtype=np.float32)
    mean, sd = np.array(model.prior.mean), np.array(model.prior.sd)
    xi = mean + sd * rng.normal(size=(n_items, LANES, mean.size))
    par = np.ascontiguousarray(np.swapaxes(model.kernel_parameters(xi), 1, 2), dtype=np.float32)
    person = np.repeat(np.arange(n_persons), per_person)
    item = rng.integers(0, n_items, person.size)
    score = model.simulate(theta[person, 0, 0].astype(np.float64), xi[item, 0], rng)
    if model.bad_scores(score).any():  # a share that float64 rounded to an end
        score = np.clip(score, 1e-6, 1 - 1e-6)
    y = model.encode_score(score).astype(np.float32)

    by_person = np.arange(n_persons + 1) * per_person
    acc = np.zeros((n_persons, 3, LANES))
    item32 = item.astype(np.int32)

    def over_persons() -> None:
        person_pass(model.tag, by_person, item32, y, theta, par, 0, 1, acc, 0, n_persons)

    order = np.argsort(item, kind="stable")
    by_item = np.searchsorted(item[order], np.arange(n_items + 1))
    who, y_item = person[order].astype(np.int32), y[order]
    q = len(model.extras)
    n = q + 2
    acc_item = np.zeros((n_items, 1 + n + n * (n + 1) // 2, LANES))
    jacobian = np.ascontiguousarray(np.moveaxis(model.extras_jacobian(xi), 1, -1))

    def over_items() -> None:
        if q:
            item_pass_extras(model.tag, by_item, who, y_item, theta, 0, par, jacobian, acc_item, 0, n_items)
        else:
            item_pass(model.tag, by_item, who, y_item, theta, 0, par, acc_item, 0, n_items)

    scale = 1e9 / (person.size * LANES)
    return best_seconds(over_persons, repeat) * scale, best_seconds(over_items, repeat) * scale


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--persons", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--per-person", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"{'model':14s} {'person pass':>18s} {'item pass':>18s}   ns per response and lane (ratio)")
    base: tuple[float, float] | None = None
    for name in model_names():
        model = make_model(name, CATEGORIES if model_class(name).polytomous else None)
        found = costs(model, options.persons, options.items, options.per_person, options.repeat)
        base = base or found
        label = name if model.n_categories in (None, 2) else f"{name} K={model.n_categories}"
        cells = " ".join(f"{value:10.2f} ({value / one:4.1f})" for value, one in zip(found, base, strict=True))
        print(f"{label:14s} {cells}", flush=True)


if __name__ == "__main__":
    main()
