"""What the store costs: ``python benchmarks/bank.py [--items 2000] [--draws 200] [--periods 2 10 40]``.

Three tables: an update without calibration against the number of past periods (seconds and resident memory of the
process), opening a bank of 100 periods x 50,000 items, and writing and reading the draws of one large period.
Draws are synthetic.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from concal.bank.bank import Bank
from concal.bank.store.commit import commit, successor
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.store.transaction import Transaction
from concal.bank.tables.calibration import read_calibration, read_item_draws, write_calibration
from concal.calibration.result import Calibration, Convergence, GroupDraws
from concal.metric import move_items
from concal.response import make_model
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["reading"]},
        "groups": {"vocabulary": {"model": "2pl", "dimension": "reading"}},
        "consensus": {"method": "analytic"},  # what the store costs; the joint method's own time is in consensus.py
    }
)


def calibration(period: str, n_items: int, n_draws: int, seed: int) -> Calibration:
    """Draws around fixed locations, on a metric of the period's own."""
    model = make_model("2pl")
    rng = np.random.default_rng(seed)
    centre = np.random.default_rng(0).normal(0, [1.0, 0.3], (n_items, 2))
    centre = move_items(centre, np.exp(rng.normal(0, 0.1)), rng.normal(0, 0.2))
    shape = (4, n_draws // 4)
    xi = rng.standard_normal((*shape, n_items, 2), dtype=np.float32) * np.float32(0.15) + centre.astype(np.float32)
    group = GroupDraws(
        name="vocabulary",
        dimension="reading",
        model=model,
        item_ids=tuple(f"item-{k:06d}" for k in range(n_items)),
        features=("1",),
        X=np.ones((n_items, 1)),
        xi=xi,
        beta=rng.normal(0, 0.02, (*shape, 1, 2)),
        sigma=np.diag([1.0, 0.09]) * rng.uniform(0.95, 1.05, (*shape, 1, 1)),
        n_responses=rng.integers(20, 200, n_items),
        rhat=np.full((n_items, 2), 1.0),
        ess_bulk=np.full((n_items, 2), float(n_draws)),
        ess_tail=np.full((n_items, 2), float(n_draws)),
    )
    run = Convergence(True, 0, 0, 1, 0.0, 1.0, float(n_draws), 1.0)
    prior = {"vocabulary": 0.01 * np.eye(1)}
    return Calibration(period, ("reading",), {"vocabulary": group}, None, run, 0.01, prior, seed, "benchmark")


def updates(folder: Path, n_items: int, n_draws: int, periods: list[int]) -> None:
    """Add periods one by one; show the cost of some of them, each in a process of its own."""
    path = folder / "bank"
    Bank.create(path, SPEC)
    print(f"\nupdate without calibration, {n_items:,} items x {n_draws} draws a period")
    print(f"{'past periods':>12} {'seconds':>8} {'peak MiB':>9}")
    for k in range(max(periods) + 1):
        command = [sys.executable, __file__, "--one", str(path), str(k), str(n_items), str(n_draws)]
        if k in periods:
            shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            print(f"{k:>12} {float(shown[0]):>8.2f} {float(shown[1]):>9.0f}", flush=True)
        else:
            Bank(path).add_calibration(calibration(f"P{k}", n_items, n_draws, k))


def one_update(path: str, k: str, n_items: str, n_draws: str) -> None:
    """The k-th update, timed; a first link in memory takes the compilation out of it."""
    from concal.linking.period import link

    warm = [calibration(f"W{j}", 200, 100, j) for j in range(2)]
    link(warm[1], warm[0], spec=SPEC.linking)
    new = calibration(f"P{k}", int(n_items), int(n_draws), int(k))
    bank = Bank(path)
    start = time.perf_counter()
    bank.add_calibration(new)
    print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def opening(folder: Path, n_periods: int = 100, n_items: int = 50_000) -> None:
    """Open a large bank and read its items; all periods share one period's files, which opening does not read."""
    path = folder / "large"
    bank = Bank.create(path, SPEC)
    bank.add_calibration(calibration("P0", n_items, 40, 0))

    def build(head: object, transaction: Transaction) -> object:
        entry = bank.snapshot.periods["P0"]
        many = {f"P{k}": entry.model_copy(update={"position": k}) for k in range(n_periods)}
        return successor(bank._store, bank.snapshot, transaction, "many periods", "", periods=many)

    commit(bank._store, build)  # type: ignore[arg-type]
    program = (
        "import time; from concal.bank.bank import Bank; s = time.perf_counter();"
        f"b = Bank({str(path)!r}); o = time.perf_counter();"
        "n = b.items().height; print(o - s, time.perf_counter() - o, n)"
    )
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    size = len(bank._store.read_bytes_of_snapshot(2))
    print(f"\nopening {n_periods} periods x {n_items:,} items (manifest {size / 1024:.0f} KiB)")
    print(f"open {float(shown[0]):.3f} s, all items {float(shown[1]):.2f} s ({int(shown[2]):,} rows)")


def draws(folder: Path, n_items: int = 30_000, n_draws: int = 1000) -> None:
    """Write and read one large period."""
    bank = Bank.create(folder / "draws", SPEC)
    big = calibration("P0", n_items, n_draws, 0)
    with Transaction.begin(bank._store) as transaction:
        writer = FolderWriter(transaction, "P0")
        start = time.perf_counter()
        write_calibration(writer, big)
        wrote = time.perf_counter() - start
        transaction.publish()
        reader = FolderReader(bank._store, writer.files)
        start = time.perf_counter()
        read_calibration(reader)
        read = time.perf_counter() - start
        some = [f"item-{k:06d}" for k in np.random.default_rng(1).choice(n_items, 500, replace=False)]
        start = time.perf_counter()
        read_item_draws(reader, some)
        part = time.perf_counter() - start
        start = time.perf_counter()
        read_item_draws(reader, some[:1])
        single = time.perf_counter() - start
    raw, size = big.groups["vocabulary"].xi.nbytes / 1e6, writer.files["draws"].bytes / 1e6
    print(f"\none period of {raw:.0f} MB raw draws: {size:.0f} MB, written in {wrote:.2f} s, read and verified in "
          f"{read:.2f} s, 500 random items {part:.2f} s, one item {single:.3f} s")  # fmt: skip


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--periods", type=int, nargs="+", default=[2, 10, 40])
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        updates(folder, given.items, given.draws, given.periods)
        opening(folder)
        draws(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one_update(*sys.argv[2:])
    else:
        main()
