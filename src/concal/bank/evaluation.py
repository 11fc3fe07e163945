"""What an evaluation gives: agreement with the pooled fit, abilities, cost and, where the truth is known, recovery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import polars as pl

from concal.errors import DataError
from concal.shown import doubts, shown

FRAMES = ("agreement", "overall", "distance", "abilities", "recovery", "pairs")


@shown
@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a bank.

    Attributes
    ----------
    name : str
    reference : str
    periods : tuple of str
        The reference first.
    methods : tuple of str
        Consensus methods compared.
    agreement, overall : polars DataFrame
        See `concal.evaluate.agreement.Agreement`.
    distance : polars DataFrame
        See `concal.evaluate.distance.split_distance`.
    abilities : polars DataFrame
        See `concal.evaluate.agreement.ability_agreement`.
    recovery : polars DataFrame
        See `concal.evaluate.recovery.recovery`; no rows where the truth is not known.
    pairs : polars DataFrame
        See `concal.evaluate.pairs.compare_pairs`.
    fallback : dict
        share and items (how many) of the population fallback, by method.
    cost : dict
        pooled_seconds, pooled_peak_mib, update_seconds by period, pooled_sweeps, pooled_converged.
    max_rhat : float
        Of the screen.
    warnings : tuple of str
    version : int or None
        Version of the bank that was evaluated.
    """

    name: str
    reference: str
    periods: tuple[str, ...]
    methods: tuple[str, ...]
    agreement: pl.DataFrame
    overall: pl.DataFrame
    distance: pl.DataFrame
    abilities: pl.DataFrame
    recovery: pl.DataFrame
    pairs: pl.DataFrame
    fallback: Mapping[str, Any]
    cost: Mapping[str, Any]
    max_rhat: float = 1.1
    warnings: tuple[str, ...] = field(default=())
    version: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The object ``concal evaluate --json`` prints."""
        plain = self.content()
        return {
            "agreement": [_nested(row, "sd_ratio", ("low", "mid", "high")) for row in self.agreement.to_dicts()],
            "overall": [_nested(row, "sd_ratio", ("low", "mid", "high")) for row in self.overall.to_dicts()],
            "distance": self.distance.to_dicts(),
            "abilities": self.abilities.to_dicts(),
            "fallback": plain["fallback"],
            "cost": plain["cost"],
            "recovery": [_nested(row, "coverage", ("50", "90", "95")) for row in self.recovery.to_dicts()],
            **{name: plain[name] for name in ("reference", "periods", "max_rhat", "warnings", "version")},
        }

    def content(self) -> dict[str, Any]:
        """Everything but the tables, as plain data for a bank."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in FRAMES}
        return {
            name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }

    def frames(self) -> dict[str, pl.DataFrame]:
        """The tables, by name."""
        return {name: getattr(self, name) for name in FRAMES}

    def _facts(self) -> dict[str, object]:
        found: dict[str, object] = {"name": self.name, "periods": ", ".join(self.periods)}
        for row in self.overall.iter_rows(named=True):
            found[f"{row['method']} {row['parameter']}"] = (
                f"means r {_short(row['mean_r'])}, RMSE {_short(row['mean_rmse'])}; SDs r {_short(row['sd_r'])}, ratio "
                f"{_short(row['sd_ratio_low'])}, {_short(row['sd_ratio_mid'])}, {_short(row['sd_ratio_high'])}"
            )
        return {**found, "warnings": doubts(self.warnings)}


def from_content(content: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> Evaluation:
    """An evaluation from what a bank kept of it."""
    missing = [name for name in FRAMES if name not in frames]
    if missing:
        raise DataError(f"the kept evaluation lacks the table(s) {', '.join(missing)}; run concal evaluate again")
    values: dict[str, Any] = {**content, **{name: frames[name] for name in FRAMES}}
    return Evaluation(**values | {name: tuple(content[name]) for name in ("periods", "methods", "warnings")})


def _nested(row: Mapping[str, Any], name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """``sd_ratio_low, ...`` as ``"sd_ratio": {"low": ...}``."""
    flat = {f"{name}_{key}" for key in keys}
    return {
        **{k: v for k, v in row.items() if k not in flat},
        name: {key: row[f"{name}_{key}"] for key in keys},
    }


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
