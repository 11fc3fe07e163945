"""What a user's type checker must accept: run by mypy --strict, not executed."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import concal


def build(folder: Path, responses: dict[str, pl.DataFrame], items: pl.DataFrame) -> concal.Bank:
    spec: concal.Spec = concal.Spec.read(folder / "bank.toml")
    bank = concal.Bank.create(folder / "bank", spec)
    for period, table in responses.items():
        update: concal.Update = bank.add(period, table, items, reason="typed")
        assert update.version > 0
    return bank


def look(bank: concal.Bank) -> float:
    frame: pl.DataFrame = bank.items(["i1"])
    abilities: pl.DataFrame = bank.abilities()
    evaluation: concal.Evaluation = bank.evaluation()
    link: concal.Link = bank.link("Q2")
    consensus: concal.Consensus = bank.consensus()
    calibration: concal.Calibration = concal.calibrate("r.csv", "i.csv", bank.spec, seed=1)
    constants: concal.LinkConstants = concal.link_parameters(frame, frame, method="haebara")
    try:
        bank.release("first")
    except concal.BankError as error:
        raise SystemExit(str(error)) from None
    return (
        float(link.A.mean())
        + constants.A
        + frame.height
        + abilities.height
        + len(evaluation.periods)
        + len(consensus.periods)
        + len(calibration.groups)
    )
