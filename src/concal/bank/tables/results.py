"""Factors, links, totals and consensus as Parquet files; reading gives back what was written."""

from __future__ import annotations

import numpy as np
import polars as pl

from concal.bank.store.codec import read_layout, read_result, write_result
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.tables.calibration import read_draws, write_draws
from concal.consensus.analytic.totals import FormTotals, Totals
from concal.consensus.factors.period import GroupFactors, PeriodFactors
from concal.consensus.result import Consensus, GroupConsensus
from concal.linking.result import Link


def write_factors(writer: FolderWriter, factors: PeriodFactors) -> None:
    """What a period's responses said, on its own metric."""
    write_result(writer, "factors", factors)


def read_factors(reader: FolderReader) -> PeriodFactors:
    """The factors of a period."""
    return read_result(reader, "factors", PeriodFactors, GroupFactors)


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
        layout = read_layout(reader, "consensus")
        draws = {name: read_draws(reader, "consensus_draws", layout, name)[0] for name in layout.groups}
        extra = {"": {"joint": draws}}
    return read_result(reader, "consensus", Consensus, GroupConsensus, extra)


def write_totals(writer: FolderWriter, totals: Totals) -> None:
    """The sums the next update builds on."""
    write_result(writer, "totals", totals)


def read_totals(reader: FolderReader) -> Totals:
    """The totals."""
    return read_result(reader, "totals", Totals, FormTotals)
