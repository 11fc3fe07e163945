"""The demonstration: a simulated programme from its files to the report, with the pooled benchmark beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from concal.bank.bank import Bank
from concal.bank.evaluation import Evaluation
from concal.calibration.period import calibrate
from concal.compiler import compile_seconds
from concal.errors import DataError
from concal.evaluate.pooled import evaluate_bank
from concal.report.page import write_report
from concal.simulate import Programme, demo_spec, simulate_programme
from concal.spec import Spec

Tell = Callable[[str], None]
Work = Callable[[str, float, str], None]

FULL: dict[str, Any] = {
    "periods": 4,
    "items": 1500,
    "examinees": 10_000,
    "responses_per_examinee": 20,
    "drift_share": 0.03,
    "drift_size": 0.6,
}
QUICK: dict[str, Any] = {
    "periods": 4,
    "items": 150,
    "examinees": 1_200,
    "responses_per_examinee": 20,
    "drift_share": 0.03,
    "drift_size": 0.6,
}
QUICK_GROUPS = ("vocabulary", "summary")
"""Every format takes several seconds to compile on a new machine."""
QUICK_CALIBRATION: dict[str, Any] = {
    "draws": 400,
    "min_ess": 40.0,
    "max_rhat": 1.15,
    "max_item_rhat": 1.15,
    "item_share": 0.9,
    "max_sweeps": 2000,
}
"""The quick run stops at looser targets; it says so."""


@dataclass(frozen=True)
class Demo:
    """What the demonstration made.

    Attributes
    ----------
    evaluation : Evaluation
    report : Path
    seconds : dict of step -> float
    compile_seconds : float
        How much of that was spent compiling.
    """

    evaluation: Evaluation
    report: Path
    seconds: dict[str, float]
    compile_seconds: float


def specification(quick: bool) -> Spec:
    """Two dimensions; three formats, or two and looser targets."""
    given = demo_spec().model_dump()
    if quick:
        given["groups"] = {name: given["groups"][name] for name in QUICK_GROUPS}
        given["calibration"] |= QUICK_CALIBRATION
    return Spec.parse(given)


def demo_programme(quick: bool, seed: int) -> Programme:
    """Four quarters of a bank with two dimensions, some formats and drifting anchors."""
    return simulate_programme(specification(quick), seed=seed, **(QUICK if quick else FULL))


def compile_engine(quick: bool) -> None:
    """A calibration with next to no data: it compiles what calibrations of the demonstration's formats need.

    A second or two where the machine code of an earlier run is there.
    """
    given = specification(quick).model_dump()
    given["calibration"] |= {**QUICK_CALIBRATION, "draws": 100, "max_sweeps": 100}
    spec = Spec.parse(given)
    tiny = simulate_programme(spec, periods=1, items=60, examinees=60, responses_per_examinee=20, seed=1)
    period, responses = next(iter(tiny.responses.items()))
    calibrate(responses, tiny.items, spec, period=period)


def run_demo(
    out: str | Path, *, quick: bool = False, seed: int = 1, tell: Tell = lambda text: None, work: Work | None = None
) -> Demo:
    """Simulate, build the bank period by period, compare with the pooled fit, write the report.

    Parameters
    ----------
    out
        A new or empty folder; gets ``programme/``, ``bank/`` and ``report.html``.
    quick
        A small programme and looser targets.
    seed
        Of the simulation.
    tell
        Called with each line of the story.
    work
        Called with (stage, share, message) while a period is added or the pooled fit runs.
    """
    out = Path(out)
    if out.is_dir() and any(out.iterdir()):
        raise DataError(f"the folder {str(out)!r} is not empty; name another one with --to")
    out.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    clock, compiled = time.perf_counter(), compile_seconds()

    def done(step: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[step], clock = now - clock, now

    compile_engine(quick)
    done("load and compile the engine")
    programme = demo_programme(quick, seed)
    files = programme.write(out / "programme", "parquet")
    n = sum(frame.height for frame in programme.responses.values())
    tell(f"simulated {len(programme.responses)} quarters: {programme.items.height:,} items, {n:,} responses")
    done("simulate")
    tell(f"$ concal init {out / 'bank'} --spec {files['spec']}")
    bank = Bank.create(out / "bank", Spec.read(files["spec"]))
    for period in programme.responses:
        tell(f"$ concal add {out / 'bank'} {period} {files[period]} --items {files['items']}")
        update = bank.add(period, files[period], files["items"], progress=work)
        done(period)
        tell(f"  version {update.version} in {seconds[period]:.0f} s; {_anchors(update.link)}")
    tell(f"$ concal evaluate {out / 'bank'} --truth {files['truth']}")
    evaluation = evaluate_bank(bank, truth=programme.truth.items, progress=work, tell=lambda text: tell(f"  {text}"))
    done("evaluate")
    report = write_report(bank, out / "report.html")
    done("report")
    tell(f"$ concal report {out / 'bank'} --to {report}")
    return Demo(evaluation, report, seconds, compile_seconds() - compiled)


def _anchors(link: Any) -> str:
    if link is None or not link.anchors.height:
        return "the reference"
    kept = link.anchors.filter(pl.col("kept")).height
    return f"{kept} of {link.anchors.height} anchors kept"
