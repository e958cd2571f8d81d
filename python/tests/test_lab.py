"""Scenarios, figures and errors. The numbers are those of the statements in docs/spec/python.md."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import taut_lab

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

SMALL = """\
title = "one flow"
duration = "2s"
warm-up = "500ms"
congestion = "reno"
measure = ["goodput", "rtt_mean", "retransmits"]

[topology]
kind = "dumbbell"
queue = "pfifo limit 50"

[link]
rate = "20mbit"
delay = "10ms"

[[flows]]
app = "bulk"
"""

SMALL_DICT = {
    "title": "one flow",
    "duration": "2s",
    "warm-up": "500ms",
    "congestion": "reno",
    "measure": ["goodput", "rtt_mean", "retransmits"],
    "topology": {"kind": "dumbbell", "queue": "pfifo limit 50"},
    "link": {"rate": "20mbit", "delay": "10ms"},
    "flows": [{"app": "bulk"}],
}


CASE = "100 Mbit/s, TSO"


def test_py_01_figures_are_the_commands_bit_for_bit() -> None:
    command = os.environ.get("TAUT")
    if command is None:
        pytest.fail("TAUT must name the command, as `make python-test` does")
    said = subprocess.run(
        [command, "lab", "run", "tsq", "--case", CASE, "--seeds", "2", "--set", "duration=2s", "--set", "warm-up=500ms"]
        + ["--no-files", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    (set_,) = json.loads(said.stdout)
    result = taut_lab.run("tsq", cases=CASE, set={"duration": "2s", "warm-up": "500ms"}, seeds=2)
    theirs = {(run["meta"]["case"], run["meta"]["variant"], run["meta"]["seed"]): run for run in set_["runs"]}
    assert len(theirs) == len(result.runs) == 10
    for run in result.runs:
        other = theirs[run.case, run.variant, run.seed]
        assert run.digest == other["meta"]["digest"]
        assert len(run.metrics) > 20
        # Equality of floats, not nearness.
        assert run.metrics == other["metrics"]
        assert run.counters == other["counters"]
        assert run.parameters == other["meta"]["parameters"]
    cells = [cell["mean"] for row in set_["table"]["rows"] for cell in row["cells"] if cell]
    assert result.table["mean"] == cells


def test_py_01_tables_are_the_commands_files(tmp_path: Path) -> None:
    command = os.environ.get("TAUT")
    if command is None:
        pytest.fail("TAUT must name the command, as `make python-test` does")
    (tmp_path / "small.toml").write_text(SMALL)
    subprocess.run(
        [command, "lab", "run", str(tmp_path / "small.toml"), "--seeds", "1", "--out", str(tmp_path / "out")],
        check=True,
        capture_output=True,
    )
    (place,) = (path.parent for path in (tmp_path / "out").rglob("acks.csv"))
    result = taut_lab.run(SMALL, seeds=1)
    for name in ("intervals", "acks", "packets"):
        table = getattr(result, name)
        with open(place / f"{name}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(table) >= 100, name
        for column in rows[0]:
            theirs = [row[column] for row in rows]
            ours = table[column]
            if isinstance(next((value for value in ours if value is not None), None), (int, float)):
                assert ours == [float(text) if text else None for text in theirs], (name, column)
            else:
                assert ours == theirs, (name, column)
        assert table.column_names == ["case", "variant", "seed", *rows[0]]
    lines = [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()[1:]]
    events = result.events.to_pydict()
    assert len(lines) == len(result.events) > 1000
    names = [name for name in events if name not in ("case", "variant", "seed")]
    for at, line in enumerate(lines):
        line["t_ns"] = line.pop("t")
        assert {name: events[name][at] for name in names if events[name][at] is not None} == line
    assert result.capture() == (place / "capture.pcapng").read_bytes()


def test_py_02_numbers_of_every_kind() -> None:
    changes = {"topology.queue-bdp": 0.5, "hosts.sender.nic.tso": False, "flows.0.options.nodelay": True}
    text = SMALL.replace('queue = "pfifo limit 50"', "queue-bdp = 0.5")
    text += "options = { nodelay = true }\n\n[hosts.sender.nic]\ntso = false\n"
    data = {
        **SMALL_DICT,
        "topology": {"kind": "dumbbell", "queue-bdp": 0.5},
        "flows": [{"app": "bulk", "options": {"nodelay": True}}],
        "hosts": {"sender": {"nic": {"tso": False}}},
    }
    plain = SMALL.replace('queue = "pfifo limit 50"', "")
    runs = [taut_lab.run(text, seeds=1), taut_lab.run(data, seeds=1), taut_lab.run(plain, set=changes, seeds=1)]
    assert len({result.runs[0].digest for result in runs}) == 1
    assert all(result.runs[0].parameters == runs[0].runs[0].parameters for result in runs)
    assert runs[0].runs[0].digest != taut_lab.run(text, set={"topology.queue-bdp": 1.0}, seeds=1).runs[0].digest


def test_py_02_text_dict_and_file_are_the_same_scenario(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    runs = [taut_lab.run(scenario, seeds=1).runs[0] for scenario in (SMALL, SMALL_DICT, file, str(file))]
    assert len({run.digest for run in runs}) == 1
    assert all(run.metrics == runs[0].metrics for run in runs)
    # 20 Mbit/s carry 1448 of 1538 bytes of payload, and reno fills the link.
    assert 0.8 * 18.83 < runs[0].metrics["goodput"] <= 18.83 * 1.001


def test_py_02_changes_are_those_of_the_command() -> None:
    changed = taut_lab.run(SMALL, set={"link.rate": "10mbit", "flows.0.count": 2, "congestion": "cubic"}, seeds=1)
    (run,) = changed.runs
    assert (run.parameters["link.rate"], run.parameters["flows.0.count"]) == ("10mbit", "2")
    assert len(changed.flows) == 2
    # Half of 18.83, and what arrived before the measured time and was read in it.
    assert run.metrics["goodput"] <= 9.42 * 1.001
    whole = taut_lab.run(SMALL_DICT, set={"link": {"rate": "10mbit", "delay": "10ms"}}, seeds=1)
    assert whole.runs[0].parameters["link.rate"] == "10mbit"


@pytest.mark.parametrize(
    ("old", "new", "key", "line"),
    [
        ('rate = "20mbit"', 'rate = "20 parsecs"', "link.rate", 12),
        ('delay = "10ms"', 'dealy = "10ms"', "link.dealy", 13),
        ('app = "bulk"', 'app = "bulky"', "flows.0.app", 16),
        ('congestion = "reno"', 'congestion = "renault"', "congestion", 4),
        ('"rtt_mean"', '"rtt_meen"', "measure.1", 5),
        ('app = "bulk"', 'app = "bulk"\n[[cases]]\nname = "a"\nset = { "link.rate" = "slow" }', "link.rate", 19),
    ],
)
def test_py_03_errors_name_key_and_line(old: str, new: str, key: str, line: int) -> None:
    assert old in SMALL
    with pytest.raises(taut_lab.ScenarioError) as caught:
        taut_lab.run(SMALL.replace(old, new))
    assert (caught.value.key, caught.value.line) == (key, line)
    assert isinstance(caught.value, ValueError)


def test_py_03_errors_of_dicts_and_changes_name_the_key() -> None:
    with pytest.raises(taut_lab.ScenarioError) as caught:
        taut_lab.run({**SMALL_DICT, "link": {"rate": "20 parsecs"}})
    assert (caught.value.key, caught.value.line) == ("link.rate", None)
    with pytest.raises(taut_lab.ScenarioError) as caught:
        taut_lab.run(SMALL, set={"link.rate": "20 parsecs"})
    assert (caught.value.key, caught.value.line) == ("link.rate", None)
    assert str(caught.value).startswith("set link.rate: link.rate: ")
    with pytest.raises(taut_lab.ScenarioError) as caught:
        taut_lab.run("title = \nduration = 3\n")
    assert caught.value.line == 1


def test_py_03_other_mistakes_are_pythons_own_exceptions(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no scenario is called tsk; there are tsq, "):
        taut_lab.run("tsk")
    with pytest.raises(FileNotFoundError):
        taut_lab.run(tmp_path / "nowhere.toml")
    # Each name once, although the scenario has cases.
    with pytest.raises(ValueError, match=r'has no variant "aftr"; there are \["before", "after", "today", "taut", "measured"\]$'):
        taut_lab.run("tsq", variants="aftr")
    with pytest.raises(TypeError, match="link.rate: a scenario has no values of type set"):
        taut_lab.run(SMALL, set={"link.rate": {1}})
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(RecursionError):
        taut_lab.run(SMALL, set={"link.rate": circle})
    with pytest.raises(ValueError, match="keep must be"):
        taut_lab.run(SMALL, keep="some")  # type: ignore[arg-type]


def test_py_04_tables_are_arrow_without_pyarrow_and_with_it() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    result = taut_lab.run(SMALL, seeds=2)
    for name in ("table", "metrics", "intervals", "flows", "blocked", "acks", "packets", "histograms", "events"):
        table = getattr(result, name)
        assert len(table) > 0, name
        arrow = pyarrow.table(table)
        assert arrow.column_names == table.column_names
        assert arrow.to_pydict() == table.to_pydict()
        # The memory is the table's own: two imports show the same addresses.
        addresses = [
            [buffer.address for buffer in pyarrow.table(table).column(0).chunk(0).buffers() if buffer] for _ in range(2)
        ]
        assert addresses[0] == addresses[1] and addresses[0], name
    assert pyarrow.schema(result.intervals).field("t_s").type == pyarrow.float64()
    frame = result.intervals.to_pandas()
    assert set(frame["seed"]) == {1, 2}
    # Every ACK is a row, but only of the first seed.
    assert set(result.acks["seed"]) == {1}
    assert {"ack", "sent", "delivered"} <= set(result.events["ev"])
    assert result.capture()[:4] == b"\x0a\x0d\x0d\x0a"
    # The goodput of the table is the mean over runs.
    rows = result.metrics.to_pydict()
    each = [value for name, value in zip(rows["metric"], rows["value"]) if name == "goodput"]
    at = result.table["metric"].index("goodput")
    assert result.table["mean"][at] == pytest.approx(sum(each) / 2)
    assert result.table["unit"][at] == "Mbit/s"
    with pytest.raises(KeyError, match="no column is called cwnd"):
        result.intervals["cwnd"]


def test_py_04_seeds_variants_and_what_is_kept() -> None:
    result = taut_lab.run(
        "tsq", set={"duration": "1s", "warm-up": "0s"}, seeds=2, seed_from=5, variants=["after"], cases=CASE, keep="none"
    )
    assert [(run.variant, run.seed) for run in result.runs] == [("after", 5), ("after", 6)]
    assert (len(result.acks), len(result.events), result.capture()) == (0, 0, b"")
    assert len(result.intervals) > 0


def test_py_05_other_threads_run_meanwhile_and_progress_is_told() -> None:
    seen: list[tuple[float, int]] = []
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.monotonic()
    taut_lab.run(SMALL, set={"duration": "20s"}, seeds=2, keep="none", progress=lambda done, runs: seen.append((done, runs)))
    took = time.monotonic() - began
    stop.set()
    thread.join()
    # If the lock were held for the whole run, this would be a tick or two.
    assert ticks > 10 and took > 0.05
    assert seen[-1] == (2.0, 2)
    assert seen == sorted(seen)


def test_py_05_what_progress_raises_stops_the_run() -> None:
    def refuse(_done: float, _runs: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taut_lab.run(SMALL, set={"duration": "1000s"}, seeds=1, keep="none", progress=refuse)


def test_py_05_control_c_stops_it() -> None:
    # A shell's background process inherits that the signal is ignored.
    program = "import signal, taut_lab\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nprint('ready', flush=True)\n"
    program += f"taut_lab.run({SMALL!r}, set={{'duration': '100000s'}}, seeds=1, keep='none')"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "ready\n"
            time.sleep(0.5)
            assert running.poll() is None
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=60)
        finally:
            running.kill()
    assert said.rstrip().endswith("KeyboardInterrupt")


def test_py_06_what_there_is() -> None:
    scenarios = taut_lab.scenarios()
    assert list(scenarios)[:2] == ["tsq", "tso-autosizing"]
    assert scenarios["tsq"].variants[:2] == ("before", "after")
    assert scenarios["tsq"].cases[1] == CASE
    assert taut_lab.metrics()["rtt_mean"].unit == "ms"
    assert taut_lab.metrics()["goodput"].unit == "Mbit/s"
    assert {name for one in scenarios.values() for name in one.measure} <= set(taut_lab.metrics())
    assert taut_lab.congestion_controls() == ["reno", "cubic", "bbr", "dctcp", "prague"]
    assert 'title = "' in scenarios["tsq"].text
