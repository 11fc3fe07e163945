"""Links, summaries, totals and consensus as Parquet files; reading gives back what was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.codec import read_result, write_result
from concal.bank.folder import FolderReader, FolderWriter
from concal.bank.tables import read_draws, write_draws
from concal.combine.form_totals import FormTotals
from concal.combine.result import Consensus, GroupConsensus
from concal.combine.summary import GroupSummary, PeriodSummary
from concal.combine.totals import Totals
from concal.link.result import Link

Array = npt.NDArray[np.float64]


def write_link(writer: FolderWriter, link: Link) -> None:
    """A link: ``links.parquet`` with a row per draw and dimension, its anchors, and how it was found."""
    n, k = link.A.shape
    writer.frame(
        "links",
        pl.DataFrame(
            {
                "draw": np.repeat(np.arange(n), k),
                "dimension": list(link.dimensions) * n,
                "A": np.ravel(link.A),
                "B": np.ravel(link.B),
            }
        ),
    )
    for name in ("anchors", "diagnostics", "methods"):
        writer.frame(f"link_{name}", getattr(link, name))
    writer.json(
        "link",
        {
            "period": link.period,
            "reference": link.reference,
            "dimensions": link.dimensions,
            "path": link.path,
            "converged": {name: float(share) for name, share in link.converged.items()},
            "warnings": link.warnings,
            "draw_index": None if link.draw_index is None else link.draw_index.tolist(),
        },
    )


def read_link(reader: FolderReader) -> Link:
    """The link of a period."""
    content = reader.json("link")
    frame, k = reader.frame("links"), len(content["dimensions"])
    return Link(
        period=content["period"],
        reference=content["reference"],
        dimensions=tuple(content["dimensions"]),
        A=frame["A"].to_numpy().reshape(-1, k).copy(),
        B=frame["B"].to_numpy().reshape(-1, k).copy(),
        anchors=reader.frame("link_anchors"),
        path={name: tuple(path) for name, path in content["path"].items()},
        converged=content["converged"],
        diagnostics=reader.frame("link_diagnostics"),
        methods=reader.frame("link_methods"),
        warnings=tuple(content["warnings"]),
        draw_index=None if content["draw_index"] is None else np.array(content["draw_index"], dtype=np.int64),
    )


def write_summary(writer: FolderWriter, summary: PeriodSummary) -> None:
    """A period's Gaussian summaries and likelihood factors."""
    write_result(writer, "factors", summary)


def read_summary(reader: FolderReader) -> PeriodSummary:
    """The summary of a period."""
    return read_result(reader, "factors", PeriodSummary, GroupSummary)


def write_consensus(writer: FolderWriter, consensus: Consensus) -> None:
    """The bank's posterior; joint draws across items as a row per item."""
    write_result(writer, "consensus", consensus, skip=("joint",))
    if consensus.joint is not None:
        xi = {name: draws[None] for name, draws in consensus.joint.items()}
        write_draws(writer, "consensus_draws", xi, {name: consensus.groups[name] for name in xi})


def read_consensus(reader: FolderReader, *, joint: bool = True) -> Consensus:
    """The consensus; `joint` False leaves the (large) joint draws out."""
    extra = None
    if joint and "consensus_draws" in reader:
        found = read_draws(reader, "consensus_draws", reader.json("consensus"))
        extra = {"": {"joint": {name: xi[0] for name, xi in found.items()}}}
    return read_result(reader, "consensus", Consensus, GroupConsensus, extra)


@dataclass(frozen=True)
class _FlatTotals:
    """Totals with one entry per form of a group, ``"0:vocabulary"``, and the links as arrays."""

    reference: str
    dimensions: tuple[str, ...]
    groups: Mapping[str, FormTotals]
    periods: tuple[str, ...]
    weights: Mapping[str, float]
    half_life: float | None
    warnings: tuple[str, ...]
    link_mean: Array
    link_covariance: Array
    metric: Array | None = None


def write_totals(writer: FolderWriter, totals: Totals) -> None:
    """The sums the next update builds on."""
    k = len(totals.dimensions)
    links = [totals.links[period] for period in totals.periods]
    flat = _FlatTotals(
        totals.reference,
        totals.dimensions,
        {f"{i}:{name}": form for name, forms in totals.groups.items() for i, form in enumerate(forms)},
        totals.periods,
        totals.weights,
        totals.half_life,
        totals.warnings,
        np.array([mean for mean, _ in links]).reshape(-1, k, 2),
        np.array([covariance for _, covariance in links]).reshape(-1, k, 2, 2),
        totals.metric,
    )
    write_result(writer, "totals", flat)


def read_totals(reader: FolderReader) -> Totals:
    """The totals."""
    flat = read_result(reader, "totals", _FlatTotals, FormTotals)
    groups: dict[str, tuple[FormTotals, ...]] = {}
    for key, form in flat.groups.items():
        name = key.split(":", 1)[1]
        groups[name] = (*groups.get(name, ()), form)
    links = {period: (flat.link_mean[m], flat.link_covariance[m]) for m, period in enumerate(flat.periods)}
    return Totals(
        flat.reference,
        flat.dimensions,
        groups,
        flat.periods,
        dict(flat.weights),
        links,
        flat.half_life,
        flat.warnings,
        flat.metric,
    )
