"""Sweeps, on this machine and on a Ray cluster. The numbers are those of the statements in docs/spec/python.md.

TAUT_SWEEP_RUNS is the number of runs of the sweep that loses a node: 40, or 2,000 by `make sweep-2000`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import taut_lab
from taut_lab import _batch, _store, _sweep

pyarrow = pytest.importorskip("pyarrow")

SCENARIO = """\
title = "two cases"
duration = "1s"
warm-up = "200ms"
seeds = 2
measure = ["goodput", "rtt_mean", "retransmits"]

[topology]
kind = "dumbbell"
queue = "pfifo limit 30"

[link]
rate = "20mbit"
delay = "10ms"
faults = { loss = 0.005 }

[[flows]]
app = "bulk"

[[variants]]
name = "reno"
set = { congestion = "reno" }

[[variants]]
name = "cubic"
set = { congestion = "cubic" }

[[cases]]
name = "1 Gbit/s, near"
set = { "link.rate" = "100mbit", "link.delay" = "2ms" }

[[cases]]
name = "7"
"""

GRID = """\
scenario = "two.toml"
measure = ["goodput", "retransmits"]
axes = [
  ["link.faults.loss=0.001", "link.faults.loss=0.01"],
  ["topology.queue=pfifo limit 20", ["topology.queue=pfifo limit 40", "link.delay=15ms"]],
]
"""
#: 4 points, 2 cases, 2 variants, 2 seeds.
RUNS = 32


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    (tmp_path / "two.toml").write_text(SCENARIO)
    file = tmp_path / "grid.toml"
    file.write_text(GRID)
    return file


def command() -> str:
    found = os.environ.get("TAUT")
    if found is None:
        pytest.fail("TAUT must name the command, as `make python-test` does")
    return found


def noted(attempts: Path) -> list[dict[str, Any]]:
    """The lines of the file of attempts; one that is being written is left out."""
    text = attempts.read_text() if attempts.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def counted(attempts: Path) -> dict[str, list[str]]:
    """What happened to each key, in order."""
    by_key: dict[str, list[str]] = {}
    for line in noted(attempts):
        by_key.setdefault(line["key"], []).append(line["what"])
    return by_key


def assert_nothing_finished_ran_again(attempts: Path, runs: int) -> None:
    by_key = counted(attempts)
    assert len(by_key) == runs
    for key, what in by_key.items():
        # Written once, and nothing after that.
        assert what.count("written") == 1 and what[-1] == "written", (key, what)
        assert what.count("began") >= 1 and what[-2] == "ended", (key, what)


def under_way(attempts: Path) -> list[int]:
    """Processes that are in the middle of a run."""
    running: dict[int, bool] = {}
    for line in noted(attempts):
        if line["what"] != "written":
            running[line["pid"]] = line["what"] == "began"
    return [pid for pid, is_running in running.items() if is_running]


def wait_for(what: Callable[[], Any]) -> Any:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(0.005)
    pytest.fail("it did not happen within a minute")


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0


def test_py_15_figures_are_the_commands_bit_for_bit(grid: Path, tmp_path: Path) -> None:
    theirs = subprocess.run([command(), "lab", "sweep", str(grid), "--csv"], check=True, capture_output=True, text=True)
    table = subprocess.run([command(), "lab", "sweep", str(grid)], check=True, capture_output=True, text=True)
    found = taut_lab.sweep(grid, out=tmp_path / "out", workers=2)
    assert len(found.csv.splitlines()) == 1 + 16
    assert (found.csv, str(found)) == (theirs.stdout, table.stdout)
    assert (tmp_path / "out/sweep.csv").read_text() == theirs.stdout
    rows = found.rows.to_pylist()
    assert (len(rows), found.ran, found.found) == (RUNS, RUNS, 0)
    # Each row is the run of `taut_lab.run` with the point's values.
    row = next(
        row
        for row in rows
        if (row["case"], row["variant"], row["seed"], row["link.faults.loss"], row["topology.queue"])
        == ("7", "cubic", 2, "0.01", "pfifo limit 40")
    )
    changes = {"link.faults.loss": 0.01, "topology.queue": "pfifo limit 40", "link.delay": "15ms"}
    result = taut_lab.run(tmp_path / "two.toml", set=changes, variants="cubic", cases="7", seeds=1, seed_from=2)
    assert row["digest"] == result.runs[0].digest
    assert {name: row[name] for name in taut_lab.metrics() if row[name] is not None} == result.runs[0].metrics


def test_py_15_a_grid_is_a_file_a_text_or_a_dict(grid: Path, tmp_path: Path) -> None:
    text = GRID.replace('"two.toml"', json.dumps(str(tmp_path / "two.toml")))
    data = {
        "scenario": str(tmp_path / "two.toml"),
        "measure": ["goodput", "retransmits"],
        "axes": [
            ["link.faults.loss=0.001", "link.faults.loss=0.01"],
            ["topology.queue=pfifo limit 20", ["topology.queue=pfifo limit 40", "link.delay=15ms"]],
        ],
    }
    ways = [taut_lab.sweep(of, out=tmp_path / "out", case="7", seeds=1, set={"duration": "500ms"}) for of in (grid, text, data)]
    # The first made the runs, the others found them.
    assert [(way.ran, way.found) for way in ways] == [(8, 0), (0, 8), (0, 8)]
    assert all(way.csv == ways[0].csv and way.rows.equals(ways[0].rows) for way in ways)


def test_py_15_the_files_of_a_scenario_go_along(tmp_path: Path) -> None:
    text = SCENARIO[: SCENARIO.index("[[variants]]")].replace('rate = "20mbit"', 'rate = "20mbit"\ntrace = "cell.csv"')
    (tmp_path / "cell.toml").write_text(text)
    (tmp_path / "cell.csv").write_text("0,10mbit\n1,10mbit\n")
    grid = 'scenario = "cell.toml"\nseeds = 1\naxes = [["link.delay=5ms"]]\n'
    (tmp_path / "grid.toml").write_text(grid)
    first = taut_lab.sweep(tmp_path / "grid.toml", out=tmp_path / "out")
    again = taut_lab.sweep(tmp_path / "grid.toml", out=tmp_path / "out")
    # Another content is another scenario.
    (tmp_path / "cell.csv").write_text("0,5mbit\n1,5mbit\n")
    other = taut_lab.sweep(tmp_path / "grid.toml", out=tmp_path / "out")
    assert [sweep.ran for sweep in (first, again, other)] == [1, 0, 1]
    assert other.rows["digest"].to_pylist() == [
        taut_lab.run(tmp_path / "cell.toml", set={"link.delay": "5ms"}, seeds=1).runs[0].digest
    ]
    # 1448 of 1538 bytes are payload.
    assert other.rows["goodput"][0].as_py() <= 5.01 * 1448 / 1538 < first.rows["goodput"][0].as_py()


def test_py_16_a_run_is_made_once_for_its_scenario_seed_and_version(grid: Path, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"

    def again(**how: Any) -> tuple[int, int]:
        found = taut_lab.sweep(grid, out=tmp_path / "out", workers=2, attempts=attempts, **how)
        return found.ran, found.found

    assert again() == (RUNS, 0)
    assert again() == (0, RUNS)
    # A further seed of each, and then another scenario: one value is other.
    assert again(seeds=3) == (RUNS // 2, RUNS)
    assert again(set={"flows.0.count": 2}) == (RUNS, 0)
    # What does not change a run does not change its key.
    assert again(set={"measure": ["rtt_mean"], "seeds": 2, "about": "words"}) == (0, RUNS)
    # A grid of which two points are the same scenario has its runs once, and each point its line.
    twice = 'scenario = "two.toml"\nvariants = ["reno"]\naxes = [["link.faults.loss=0.03", ["link.faults.loss=0.03"]]]\n'
    (tmp_path / "twice.toml").write_text(twice)
    same = taut_lab.sweep(tmp_path / "twice.toml", out=tmp_path / "out", attempts=attempts)
    assert (same.ran, len(same.csv.splitlines())) == (4, 1 + 4)
    assert_nothing_finished_ran_again(attempts, RUNS + RUNS // 2 + RUNS + 4)
    # Rows of other code are no rows of this.
    store = _store.Store(tmp_path / "out")
    assert store.finished("0.0.0+0") == set()
    assert len(store.finished(_batch.VERSION)) == RUNS + RUNS // 2 + RUNS + 4
    with pytest.raises(BlockingIOError, match="another sweep writes into"):
        taut_lab.sweep(grid, out=tmp_path / "out")
    store.close()


def test_py_17_a_killed_sweep_goes_on_where_it_was(grid: Path, tmp_path: Path) -> None:
    attempts, out = tmp_path / "attempts", tmp_path / "out"
    program = f"import taut_lab; taut_lab.sweep({str(grid)!r}, out={str(out)!r}, batch=1, workers=2, attempts={str(attempts)!r})"
    running = subprocess.Popen([sys.executable, "-c", program])
    wait_for(lambda: sum(line["what"] == "written" for line in noted(attempts)) >= 5 and len(under_way(attempts)) == 2)
    running.kill()
    running.wait()
    # Its workers end with it.
    pids = {line["pid"] for line in noted(attempts) if line["what"] == "began"}
    wait_for(lambda: not any(is_there(pid) for pid in pids))
    before = counted(attempts)
    written = {key for key, what in before.items() if "written" in what}
    assert 5 <= len(written) < RUNS
    # What a killed process may leave: part of a file, which no reader takes for one.
    whole = next(out.glob("runs/case=*/*.parquet"))
    (whole.parent / f".{whole.name}.partial").write_bytes(whole.read_bytes()[:100])
    files = {file: file.stat().st_mtime_ns for file in out.glob("runs/case=*/*.parquet")}
    found = taut_lab.sweep(grid, out=out, workers=2, attempts=attempts)
    # The kill may have come between a file and its line.
    assert len(written) <= found.found <= len(written) + 1
    assert found.ran == RUNS - found.found
    after = counted(attempts)
    assert all(after[key] == before[key] for key in written)
    assert {file: file.stat().st_mtime_ns for file in files} == files
    assert not list(out.glob("runs/case=*/.*"))
    assert found.rows.equals(taut_lab.sweep(grid, out=tmp_path / "whole", workers=2).rows)


def test_py_18_the_data_set_is_whole_whenever_it_is_read(grid: Path, tmp_path: Path) -> None:
    import pyarrow.dataset

    seen: list[int] = []
    cases = pyarrow.dataset.partitioning(pyarrow.schema([("case", pyarrow.string())]), flavor="hive")

    def read(progress: taut_lab.Progress) -> None:
        if progress.done:
            table = pyarrow.dataset.dataset(tmp_path / "out/runs", partitioning=cases).to_table()
            keys = set(zip(table["scenario_hash"].to_pylist(), table["seed"].to_pylist()))
            assert len(keys) == len(table) == progress.done
            seen.append(len(table))

    taut_lab.sweep(grid, out=tmp_path / "out", batch=2, workers=2, progress=read)
    assert seen[-1] == RUNS and len(set(seen)) == RUNS // 2
    # As any program reads it: a folder for each case, names percent-encoded, and the unit in the field.
    frame = pytest.importorskip("pandas").read_parquet(tmp_path / "out/runs", partitioning=cases)
    assert frame.groupby("case").size().to_dict() == {"1 Gbit/s, near": 16, "7": 16}
    assert sorted(path.name for path in (tmp_path / "out/runs").iterdir()) == ["case=1%20Gbit%2Fs%2C%20near", "case=7"]
    schema = pyarrow.parquet.read_schema(next(tmp_path.glob("out/runs/case=7/*.parquet")))
    assert schema.field("goodput").metadata == {b"unit": b"Mbit/s"}
    # A scenario without cases.
    (tmp_path / "one.toml").write_text('scenario = "single-flow"\nseeds = 1\naxes = [["duration=1s"]]\nvariants = ["reno"]\n')
    one = taut_lab.sweep(tmp_path / "one.toml", out=tmp_path / "one", set=["warm-up=100ms"])
    assert one.rows["case"].to_pylist() == [None]
    frame = pytest.importorskip("pandas").read_parquet(tmp_path / "one/runs")
    assert frame.goodput.to_list() == one.rows["goodput"].to_pylist() and "case" not in frame
    # Both in one directory.
    both = taut_lab.sweep(tmp_path / "one.toml", out=tmp_path / "out", set=["warm-up=100ms"])
    assert both.rows.equals(one.rows)
    assert pyarrow.dataset.dataset(tmp_path / "out/runs", partitioning=cases).count_rows() == RUNS + 1
    assert taut_lab.sweep(grid, out=tmp_path / "out").ran == 0


def slow(tmp_path: Path, runs: int, seconds: int) -> Path:
    """A grid of 2 points and so many runs, each of so many seconds of virtual time."""
    (tmp_path / "slow.toml").write_text(SCENARIO[: SCENARIO.index("[[variants]]")].replace('"1s"', f'"{seconds}s"'))
    text = f'scenario = "slow.toml"\nseeds = {runs // 2}\naxes = [["link.delay=5ms", "link.delay=10ms"]]\n'
    (tmp_path / "slow-grid.toml").write_text(text)
    return tmp_path / "slow-grid.toml"


def kill_in_a_run(attempts: Path, of: Callable[[int], bool] = lambda _pid: True) -> int:
    """Kills a worker of these that is certainly in the middle of a run, not between two."""

    def kill() -> int:
        for pid in filter(of, under_way(attempts)):
            os.kill(pid, signal.SIGSTOP)
            if pid in under_way(attempts):
                os.kill(pid, signal.SIGKILL)
                return pid
            os.kill(pid, signal.SIGCONT)
        return 0

    found = wait_for(kill)
    assert isinstance(found, int)
    return found


def killer(attempts: Path, after: int) -> Callable[[taut_lab.Progress], None]:
    """Kills a worker in the middle of a run, when so many runs are done."""
    killed: list[int] = []

    def kill(progress: taut_lab.Progress) -> None:
        if progress.done >= after and not killed:
            killed.append(kill_in_a_run(attempts))

    return kill


def assert_one_batch_ran_again(attempts: Path, runs: int, batch: int) -> None:
    assert_nothing_finished_ran_again(attempts, runs)
    twice = [key for key, what in counted(attempts).items() if what.count("began") > 1]
    assert 1 <= len(twice) <= batch
    assert all(what.count("began") <= 2 for what in counted(attempts).values())


def test_py_19_a_worker_that_dies_costs_its_batch(tmp_path: Path) -> None:
    grid, attempts = slow(tmp_path, 24, 10), tmp_path / "attempts"
    found = taut_lab.sweep(
        grid, out=tmp_path / "out", batch=3, workers=2, attempts=attempts, progress=killer(attempts, 6)
    )
    assert found.ran == 24
    assert_one_batch_ran_again(attempts, 24, 3)
    assert found.rows.equals(taut_lab.sweep(grid, out=tmp_path / "whole", workers=2).rows)


def test_py_19_a_batch_without_figures_does_not_stop_the_others(tmp_path: Path) -> None:
    grid, attempts = slow(tmp_path, 24, 10), tmp_path / "attempts"
    with pytest.raises(taut_lab.SweepError, match=r"1 batches have no figures:\nslow: link.delay=.*ms, run, seeds .*: the worker died") as caught:
        taut_lab.sweep(
            grid, out=tmp_path / "out", batch=3, workers=2, retries=0, attempts=attempts, progress=killer(attempts, 6)
        )
    assert len(caught.value.failures) == 1
    # The next call makes those three, and no other.
    found = taut_lab.sweep(grid, out=tmp_path / "out", workers=2, attempts=attempts)
    assert (found.ran, found.found) == (3, 21)
    assert_one_batch_ran_again(attempts, 24, 3)


def test_py_19_a_worker_of_other_code_gives_no_figures(grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sweep, "VERSION", "0.0.0+0")
    with pytest.raises(taut_lab.SweepError, match=r"this worker has taut_lab .*, the sweep has 0.0.0\+0: install the same on all nodes"):
        taut_lab.sweep(grid, out=tmp_path / "out", workers=1, seeds=1)
    assert not list(tmp_path.glob("out/runs/case=*/*"))


def test_py_20_progress_says_how_much_time_is_left(grid: Path, tmp_path: Path) -> None:
    # 20 runs in 4 s, and 70 to come.
    progress = taut_lab.Progress(done=30, runs=100, found=10, seconds=4.0)
    assert progress.seconds_left == pytest.approx(14.0)
    assert str(progress) == "30 of 100 runs, 14 s left"
    assert str(taut_lab.Progress(3, 4000, 2, 3.5)) == "3 of 4,000 runs, 3 h 53 min left"
    assert taut_lab.Progress(10, 100, 10, 4.0).seconds_left is None
    seen: list[taut_lab.Progress] = []
    taut_lab.sweep(grid, out=tmp_path / "out", workers=2, seeds=1, progress=seen.append)
    assert seen[-1].done == seen[-1].runs == RUNS // 2 and seen[-1].seconds_left == 0
    assert [one.done for one in seen] == sorted(one.done for one in seen)

    def refuse(_progress: taut_lab.Progress) -> None:
        raise KeyboardInterrupt

    attempts = tmp_path / "attempts"
    with pytest.raises(KeyboardInterrupt):
        taut_lab.sweep(slow(tmp_path, 20, 100_000), out=tmp_path / "stopped", workers=2, attempts=attempts, progress=refuse)
    # No worker goes on.
    wait_for(lambda: not any(is_there(line["pid"]) for line in noted(attempts)))


def test_py_21_mistakes_name_key_and_line(grid: Path, tmp_path: Path) -> None:
    grid.write_text(GRID.replace("loss=0.01", "los=0.01"))
    with pytest.raises(taut_lab.ScenarioError, match="axes: link.faults.los=0.01: link.faults.los: unknown field"):
        taut_lab.sweep(grid, out=tmp_path / "out")
    grid.write_text(GRID.replace("measure", "mesure"))
    with pytest.raises(taut_lab.ScenarioError) as caught:
        taut_lab.sweep(grid, out=tmp_path / "out")
    assert caught.value.line == 2
    grid.write_text(GRID + 'variants = ["reno", "vegas"]\n')
    with pytest.raises(taut_lab.ScenarioError, match="two has no variant vegas; there are reno, cubic"):
        taut_lab.sweep(grid, out=tmp_path / "out")
    grid.write_text(GRID.replace("two.toml", "three.toml"))
    with pytest.raises(OSError, match="cannot read .*three.toml"):
        taut_lab.sweep(grid, out=tmp_path / "out")
    for how, why in (({"seeds": 0}, "seeds"), ({"batch": 11}, "batch must be from 1 to 10"), ({"workers": 0}, "workers")):
        with pytest.raises(ValueError, match=why):
            taut_lab.sweep(grid, out=tmp_path / "out", **how)
    with pytest.raises(TypeError, match="needs `out`"):
        taut_lab.sweep(GRID)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster of one node, with one processor."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def test_py_22_a_cluster_that_loses_a_node_gives_the_same(tmp_path: Path, cluster: Any) -> None:
    runs = int(os.environ.get("TAUT_SWEEP_RUNS", "40"))
    grid, attempts = slow(tmp_path, runs, 10 if runs <= 100 else 4), tmp_path / "attempts"
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    (process,) = second.all_processes["raylet"]
    raylet = process.process.pid
    removed_at: list[int] = []

    def remove(progress: taut_lab.Progress) -> None:
        if progress.done >= runs // 4 and not removed_at:
            # The whole machine at once: what runs there, and then what started it.
            wait_for(lambda: len(under_way(attempts)) == 2)
            kill_in_a_run(attempts, lambda pid: parent_of(pid) == raylet)
            cluster.remove_node(second, allow_graceful=False)
            removed_at.append(progress.done)

    found = taut_lab.sweep(grid, on=cluster.address, out=tmp_path / "out", batch=2, attempts=attempts, progress=remove)
    assert runs // 4 <= removed_at[0] < runs
    assert (found.ran, found.found, len(found.rows)) == (runs, 0, runs)
    # Nothing is lost, and nothing that was written ran again; what the lost node had did.
    assert_one_batch_ran_again(attempts, runs, 2)
    pids = {line["pid"] for line in noted(attempts) if line["what"] == "began"}
    assert len(pids) >= 2
    local = taut_lab.sweep(grid, out=tmp_path / "local", workers=2)
    assert found.rows.equals(local.rows)
    assert found.csv == local.csv
    print(f"\n{runs} runs, a node removed after {removed_at[0]}: {len(noted(attempts))} lines of attempts, {len(pids)} workers")


def test_py_22_the_command_calls_the_same(grid: Path, tmp_path: Path, cluster: Any) -> None:
    words = [command(), "lab", "sweep", str(grid), "--case", "7", "--set", "duration=500ms", "--seeds", "1"]
    there = subprocess.run(
        [*words, "--out", str(tmp_path / "out"), "--ray", cluster.address],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert there.returncode == 0, there.stderr
    here = subprocess.run(words, check=True, capture_output=True, text=True)
    assert there.stdout.endswith(here.stdout) and len(here.stdout.splitlines()) == 1 + 8
    assert len(list(tmp_path.glob("out/runs/case=7/*.parquet"))) == 8
    wrong = subprocess.run(
        [*words, "--out", str(tmp_path / "out"), "--ray", "x"], env={**os.environ, "PYTHON": "/nowhere/python"}, capture_output=True, text=True
    )
    assert wrong.returncode == 1 and "--ray needs Python with the packages taut_lab and ray" in wrong.stderr
