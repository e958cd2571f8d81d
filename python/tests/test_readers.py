"""The files of a run in programs that are not ours. The number is that of the statement in docs/spec/python.md.

`make python-test` installs these programs, and builds the command with `--features parquet` for a run's Parquet.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import taut_lab

pandas = pytest.importorskip("pandas")

SCENARIO = """\
title = "two flows"
duration = "2s"
measure = ["goodput"]

[topology]
kind = "dumbbell"
queue = "pfifo limit 30"

[link]
rate = "20mbit"
delay = "10ms"

[[flows]]
app = "bulk"
count = 2
stagger = "500ms"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run, as the command writes it."""
    command = os.environ.get("TAUT")
    if command is None:
        pytest.fail("TAUT must name the command, as `make python-test` does")
    place = tmp_path_factory.mktemp("readers")
    (place / "two.toml").write_text(SCENARIO)
    subprocess.run([command, "lab", "run", "two.toml"], cwd=place, check=True, capture_output=True)
    return place / "lab-results/two/run-sim-seed1"


def flent(run: Path, *words: str) -> str:
    if importlib.util.find_spec("flent") is None:
        pytest.skip("needs flent: pip install flent")
    said = subprocess.run(
        [sys.executable, "-m", "flent", *words, "run.flent"],
        cwd=run,
        env={**os.environ, "MPLBACKEND": "Agg"},
        check=True,
        capture_output=True,
        text=True,
    )
    for sign in ("Traceback", "ERROR", "WARNING", "Unable to"):
        assert sign not in said.stderr, said.stderr
    # It introduces itself first.
    return said.stdout.split("\n", 1)[1] if said.stdout.startswith("Starting Flent") else said.stdout


def test_py_24_flent_shows_the_intervals(run: Path) -> None:
    rows = list(csv.DictReader(flent(run, "-f", "csv").splitlines()))
    intervals = pandas.read_csv(run / "intervals.csv")
    assert len(rows) == 100
    for flow in (0, 1):
        name = f"TCP upload::{flow + 1}"
        ours = {round(row.t_s, 6): row for row in intervals[intervals.flow == flow].itertuples()}
        compared = 0
        for row in rows:
            mine = ours.get(round(float(row["tcp_nup"]), 6))
            if mine is None:
                assert row[name] == ""
                continue
            compared += 1
            assert float(row[name]) == pytest.approx(mine.goodput_bps / 1e6)
            if mine.srtt_s == mine.srtt_s:
                assert float(row[f"{name}::tcp_rtt"]) == pytest.approx(mine.srtt_s * 1e3)
            assert float(row[f"{name}::tcp_delivery_rate"]) == pytest.approx(mine.delivery_bps / 1e6)
        # The second begins 0.5 s later.
        assert compared == len(ours) > 70


def test_py_24_flent_knows_the_units(run: Path) -> None:
    lines = flent(run, "-f", "summary").splitlines()
    units = {line.split(":  ")[0].strip(" :"): line.split() for line in lines if " : " in line}
    assert "ms" in units["TCP upload::1::tcp_rtt"] and "Mbits/s" in units["TCP upload::1::tcp_pacing_rate"]
    # 1448 of 1538 bytes are payload; both flows together, over all intervals.
    mean = float(units["TCP upload sum"][units["TCP upload sum"].index(":") + 1])
    assert 0.8 * 20 * 1448 / 1538 < mean <= 20 * 1448 / 1538


@pytest.mark.parametrize("plot", ["totals", "upload", "tcp_delivery_with_rtt", "box_totals"])
def test_py_24_flent_draws(run: Path, tmp_path: Path, plot: str) -> None:
    flent(run, "-p", plot, "-o", str(tmp_path / "plot.svg"))
    picture = (tmp_path / "plot.svg").read_text()
    # Text is drawn as outlines, each after a comment with its words.
    assert "two: run, taut sim, seed 1" in picture or plot == "box_totals"
    assert "Mbits/s" in picture and picture.count("<path") > 20


def table(run: Path, name: str) -> tuple[Path, Any]:
    file = run / f"{name}.parquet"
    if not file.exists():
        pytest.skip("needs a command built with --features parquet")
    return file, pandas.read_csv(run / f"{name}.csv")


@pytest.mark.parametrize("name", ["intervals", "acks"])
def test_py_24_parquet_is_the_csv(run: Path, name: str) -> None:
    file, ours = table(run, name)
    frame = pandas.read_parquet(file)
    assert list(frame.columns) == list(ours.columns) and len(frame) == len(ours) > 100
    pandas.testing.assert_frame_equal(frame, ours, check_dtype=False, check_exact=True)


@pytest.mark.parametrize("name", ["intervals", "acks"])
def test_py_24_polars_and_duckdb_read_the_same(run: Path, name: str) -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    file, ours = table(run, name)
    frame = polars.read_parquet(file)
    assert frame.schema["flow"] == polars.Int64 and frame.schema["t_s"] == polars.Float64
    for column in ours.columns:
        nulls = int(ours[column].isna().sum())
        assert frame[column].null_count() == nulls, column
        total = duckdb.sql(f"SELECT count(\"{column}\") FROM '{file}'").fetchall()
        assert total == [(len(ours) - nulls,)], column
    most = duckdb.sql(f"SELECT flow, max(cwnd_bytes) FROM '{file}' GROUP BY flow ORDER BY flow").fetchall()
    assert most == [(flow, int(ours[ours.flow == flow].cwnd_bytes.max())) for flow in (0, 1)]
    assert frame["t_s"].to_list() == ours.t_s.to_list()


def test_py_24_a_sweep_s_rows_in_polars_and_duckdb(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    (tmp_path / "two.toml").write_text(
        SCENARIO.replace('"2s"', '"500ms"') + '\n[[cases]]\nname = "1 Gbit/s, near"\nset = { "link.rate" = "1gbit" }\n'
        '\n[[cases]]\nname = "7"\n'
    )
    (tmp_path / "grid.toml").write_text('scenario = "two.toml"\nseeds = 2\naxes = [["link.delay=5ms", "link.delay=10ms"]]\n')
    rows = taut_lab.sweep(tmp_path / "grid.toml", out=tmp_path / "out").rows.to_pandas()
    files = f"{tmp_path}/out/runs/**/*.parquet"
    frame = polars.read_parquet(files, hive_partitioning=True, hive_schema={"case": polars.String})
    found = duckdb.sql(
        f"SELECT \"case\", count(*), sum(goodput) FROM read_parquet('{files}', hive_partitioning=true, hive_types={{'case': VARCHAR}})"
        ' GROUP BY "case" ORDER BY "case"'
    ).fetchall()
    expected = rows.groupby("case").goodput.agg(["size", "sum"])
    assert [case for case, _, _ in found] == list(expected.index) == ["1 Gbit/s, near", "7"]
    for case, count, total in found:
        assert (count, total) == (4, pytest.approx(expected.loc[case, "sum"]))
        part = frame.filter(polars.col("case") == case)
        assert (len(part), part["goodput"].sum()) == (4, pytest.approx(total))
