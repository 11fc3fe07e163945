"""Every result reads back as it was written, and any tool can read the files."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.store.parquet import read_table
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.bank.store.upkeep import check_file
from concal.bank.tables.abilities import ability_table
from concal.bank.tables.calibration import read_calibration, read_item_draws, write_calibration
from concal.bank.tables.person_groups import group_table
from concal.bank.tables.results import (
    read_consensus,
    read_factors,
    read_link,
    read_totals,
    write_consensus,
    write_factors,
    write_link,
    write_totals,
)
from concal.calibration.result import Abilities, Calibration
from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.combine import place
from concal.consensus.factors.make import make_factors
from concal.consensus.result import Consensus
from concal.data.check import check_period
from concal.errors import BankError
from concal.linking.result import Link, identity_link

from .places import forget_cache, overwrite
from .programme import SPEC, fake_calibrator, items_table, responses_table, same


@cache
def calibrated(period: str, first: int = 0) -> Calibration:
    checked = check_period(responses_table(period, first), items_table(), SPEC, period=period)
    return fake_calibrator(checked.data, SPEC, period=period, seed=1)


@pytest.fixture
def writer(store: Store) -> FolderWriter:
    return FolderWriter(Transaction.begin(store), "part")


def published(writer: FolderWriter) -> FolderReader:
    writer.transaction.publish()
    return FolderReader(writer.transaction.store, writer.files)


def test_calibration(writer: FolderWriter) -> None:
    calibration = calibrated("Q1")
    write_calibration(writer, calibration)
    same(read_calibration(published(writer)), calibration)


def test_calibration_with_what_the_engine_keeps_beside_draws(writer: FolderWriter) -> None:
    rng, calibration = np.random.default_rng(5), calibrated("Q1")
    group = calibration.groups["vocabulary"]
    n = group.n_items
    shapes = {
        "moments": (n, 12),
        "bin_mean": (n, 3),
        "bin_sd": (n, 3),
        "cell_score": (n, 3, 2),
        "cell_count": (n, 3, 2),
    }
    group = replace(group, **{name: rng.normal(size=shape) for name, shape in shapes.items()})
    calibration = replace(calibration, groups={**calibration.groups, "vocabulary": group})
    write_calibration(writer, calibration)
    same(read_calibration(published(writer)), calibration)


def test_calibration_of_another_engine(writer: FolderWriter) -> None:
    calibration = replace(calibrated("Q1"), abilities=None)
    write_calibration(writer, calibration)
    same(read_calibration(published(writer)), calibration)


def test_draws_of_some_items(writer: FolderWriter) -> None:
    calibration = calibrated("Q1")
    write_calibration(writer, calibration)
    reader = published(writer)
    draws = read_item_draws(reader, ["e03", "v01", "unknown"])
    assert list(draws) == ["e03", "v01"]
    for item, values in draws.items():
        group = calibration.groups["essay" if item[0] == "e" else "vocabulary"]
        np.testing.assert_array_equal(values, group.xi[:, :, group.item_ids.index(item)])


def test_factors_link_totals_consensus(writer: FolderWriter) -> None:
    first, second = calibrated("Q1"), calibrated("Q2", 3)
    rng = np.random.default_rng(3)
    A, B = np.exp(rng.normal(0, 0.1, (100, 2))), rng.normal(0, 0.1, (100, 2))
    anchors = pl.DataFrame({"item_id": ["v01"], "kept": [True], "residual": [0.1], "dropped_by": [None]})
    path = {"reading": ("Q2", "Q1")}
    link = Link("Q2", "Q1", first.dimensions, A, B, anchors, path, {"reading": 1.0}, warnings=("x",))
    write_link(writer, link)
    factors = make_factors(second)
    write_factors(writer, factors)
    own = identity_link("Q1", first.dimensions, first.n_draws)
    totals = sum_periods([place(make_factors(first), own), place(factors, link)], 2.0)
    write_totals(writer, totals)
    consensus = consensus_from_totals(totals)
    rng_draws = {n: rng.normal(size=(7, len(g.item_ids), g.mean.shape[1])) for n, g in consensus.groups.items()}
    consensus = replace(consensus, joint={n: v.astype(np.float32) for n, v in rng_draws.items()})
    write_consensus(writer, consensus)
    reader = published(writer)
    same(read_link(reader), link)
    same(read_factors(reader), factors)
    same(read_totals(reader), totals)
    same(read_consensus(reader), consensus)
    assert read_consensus(reader, joint=False).joint is None


def test_any_tool_reads_the_files(writer: FolderWriter, tmp_path: Path) -> None:
    calibration = calibrated("Q1")
    write_calibration(writer, calibration)
    reader = published(writer)
    path = tmp_path / "draws.parquet"
    path.write_bytes(reader.store.objects.read(reader.entry("draws").path))
    frame = pl.read_parquet(path)
    assert frame.columns == ["item_id", "group", "d", "log_a", "c_1", "c_2"]
    np.testing.assert_array_equal(frame["d"][0].to_numpy(), calibration.groups["vocabulary"].xi[:, :, 0, 0].ravel())
    column = pq.ParquetFile(path).metadata.row_group(0).column(2)
    assert "BYTE_STREAM_SPLIT" in column.encodings
    assert column.compression == "ZSTD"
    assert read_table(reader.store, reader.entry("abilities")).num_rows == 60


@pytest.mark.parametrize("key", ["draws", "population", "abilities", "calibration", "calibration_items"])
def test_flipped_bytes_and_truncations_are_noticed(writer: FolderWriter, key: str) -> None:
    write_calibration(writer, calibrated("Q1"))
    reader = published(writer)
    entry = reader.entry(key)
    store = reader.store
    good = store.objects.read(entry.path)
    rng = np.random.default_rng(4)
    places = {0, 3, len(good) - 1, len(good) - 5, *rng.integers(0, len(good), 25).tolist()}
    for at in places:
        bad = bytearray(good)
        bad[at] ^= 1 << int(rng.integers(8))
        overwrite(store, entry.path, bytes(bad))
        with pytest.raises(BankError, match=entry.path):
            read_calibration(reader)
        with pytest.raises(BankError, match=entry.path):
            check_file(reader.store, entry)
        if key == "draws":
            _part_is_right_or_refused(reader)
        overwrite(store, entry.path, good[:at])
        with pytest.raises(BankError, match=entry.path):
            read_calibration(reader)
    store.objects.delete([entry.path])
    forget_cache(store)
    with pytest.raises(BankError, match="missing"):
        read_calibration(reader)
    with pytest.raises(BankError, match="missing"):
        check_file(reader.store, entry)


def _part_is_right_or_refused(reader: FolderReader) -> None:
    """A read of one row group verifies what it touches: damage elsewhere does not stop it, damage here does."""
    calibration = calibrated("Q1")
    for item in ("v00", "e00"):
        try:
            draws = read_item_draws(reader, [item])
        except BankError as error:
            assert "draws.parquet" in str(error)  # noqa: PT017
            continue
        group = calibration.groups["essay" if item[0] == "e" else "vocabulary"]
        np.testing.assert_array_equal(draws[item], group.xi[:, :, 0])


def test_page_checksums_are_written_for_other_readers(writer: FolderWriter, tmp_path: Path) -> None:
    write_calibration(writer, calibrated("Q1"))
    reader = published(writer)
    path = tmp_path / "draws.parquet"
    path.write_bytes(reader.store.objects.read(reader.entry("draws").path))
    data = bytearray(path.read_bytes())
    place = pq.ParquetFile(path).metadata.row_group(0).column(2).data_page_offset + 200
    data[place] ^= 4
    (tmp_path / "bad.parquet").write_bytes(bytes(data))
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(tmp_path / "bad.parquet", page_checksum_verification=True)


def test_how_a_and_b_vary_together_is_what_the_method_in_force_found() -> None:
    """The joint method has draws of its links; others have those of the period's own link."""
    rng, n = np.random.default_rng(3), 400
    calibration = calibrated("Q1")
    k = len(calibration.dimensions)
    log_A = 0.1 * rng.normal(size=(n, k))
    link = replace(identity_link("Q0", calibration.dimensions, n), period="Q1", A=np.exp(log_A), B=0.2 * log_A / 0.1)
    rows = [{"period": "Q1", "dimension": d, "A_mean": 1.0, "A_sd": 0.1, "B_mean": 0.5, "B_sd": 0.2} for d in
            calibration.dimensions]  # fmt: skip
    pairwise = Consensus("analytic", "Q0", calibration.dimensions, ("Q0", "Q1"), {}, links=pl.DataFrame(rows))
    against = np.stack([log_A, -0.2 * log_A / 0.1], axis=-1)
    joint = replace(pairwise, method="joint", joint_links=np.stack([np.zeros_like(against), against], axis=1))
    assert calibration.abilities is not None
    mean = calibration.abilities.mean.T.ravel()
    for consensus, sign in ((pairwise, 1.0), (joint, -1.0)):
        table = ability_table(calibration, link, consensus)
        np.testing.assert_allclose(table["sd_link"], np.abs(0.1 * mean + sign * 0.2), atol=0.02)
        np.testing.assert_allclose(table["theta"], mean + 0.5)


def test_a_group_of_one_examinee_has_no_sd() -> None:
    draws = np.random.default_rng(1).normal(1, 0.1, (2, 5, 2, 1))
    abilities = Abilities(
        person_ids=pl.Series(["p", "q", "r"]),
        mean=np.zeros((3, 1)),
        sd=np.ones((3, 1)),
        n_responses=np.ones((3, 1), dtype=np.int64),
        draw_mean=draws[:, :, 0],
        draw_sd=draws[:, :, 1],
        correlation=np.ones((2, 5, 1, 1)),
        populations=("a", "b"),
        population=np.array([0, 0, 1], dtype=np.int32),
        population_mean=draws,
        population_sd=draws,
    )
    calibration = SimpleNamespace(abilities=abilities, dimensions=("x",))
    table = group_table({"Q1": calibration}, {"Q1": identity_link("Q1", ("x",), 10)})  # type: ignore[dict-item]
    assert table["n_persons"].to_list() == [3, 2, 1]
    assert table["sd"].is_null().to_list() == table["sd_sd"].is_null().to_list() == [False, False, True]
    assert not table["mean"].has_nulls()
