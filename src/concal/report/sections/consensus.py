"""Where the items' numbers come from, and how certain they are."""

from __future__ import annotations

from concal.evaluate.digest import source_table
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View


def section(view: View, block: Block) -> Section:
    """Sources by group; the figure reads the explorer's arrays."""
    return Section("consensus", "Consensus", printed={"sources": printed(source_table(view.consensus))})
