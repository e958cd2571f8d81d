"""Congestion controllers in Python in sweeps, on this machine and on a Ray cluster. The numbers are those of docs/spec/python.md."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from test_sweep import SCENARIO, cluster, command  # noqa: F401 - a fixture

import taut_lab
from taut_lab import _carry

pytest.importorskip("pyarrow")
pytest.importorskip("cloudpickle")

#: A file of a user, as it goes to `taut lab sweep --controllers`, too. The window after a loss is that of a function beside the class.
FILE = """\
import math

import taut_lab

LEAST = 2


def rest(cwnd, share):
    return max(LEAST, math.floor(cwnd * share))


class Aimd(taut_lab.Controller):
    params = {"share": (0.5, 0.1, 0.95, "share of the window that is left after a loss")}

    def __init__(self, share):
        self.share = share

    def on_ack(self, window, ack):
        left = window.slow_start(ack.acked) if window.in_slow_start else ack.acked
        window.additive(window.cwnd, left)

    def on_loss(self, window, why, now_s):
        return rest(window.cwnd, self.share)


controllers = {"aimd": Aimd}
"""


def module(path: Path, text: str = FILE) -> types.ModuleType:
    """A module of this text, which no worker can import."""
    path.write_text(text)
    made = types.ModuleType(path.stem)
    made.__file__ = str(path)
    exec(compile(text, str(path), "exec"), made.__dict__)
    sys.modules[path.stem] = made
    return made


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    (tmp_path / "two.toml").write_text(SCENARIO.partition("[[variants]]")[0])
    file = tmp_path / "grid.toml"
    # RFC 5681 halves, so that the second point is the third.
    axis = ["congestion=aimd:share=0.8", "congestion=aimd:share=0.5", "congestion=reno"]
    file.write_text(f'scenario = "two.toml"\nmeasure = ["goodput", "retransmits"]\naxes = [{axis}]\n')
    return file


def test_py_25_a_sweep_takes_controllers_in_python(grid: Path, tmp_path: Path) -> None:
    ours = module(tmp_path / "ours_one.py").controllers
    out = tmp_path / "out"
    swept = taut_lab.sweep(grid, out=out, controllers=ours, workers=2)
    assert (swept.ran, swept.found) == (6, 0)
    digests = swept.rows["digest"].to_pylist()
    assert len(set(digests[:2] + digests[2:4])) == 4
    # Reno in Python is Reno.
    assert digests[2:4] == digests[4:6] and min(swept.to_pandas().retransmits) > 0
    for text, at in (("aimd:share=0.8", 0), ("reno", 4)):
        alone = taut_lab.run(str(tmp_path / "two.toml"), set={"congestion": text}, controllers=ours)
        assert [run.digest for run in alone.runs] == digests[at : at + 2]
    assert taut_lab.sweep(grid, out=out, controllers=ours).ran == 0


@pytest.mark.parametrize(
    ("old", "new"), [("(0.5, 0.1,", "(0.5, 0.2,"), ("max(LEAST,", "max(1 + LEAST,"), ("LEAST = 2", "LEAST = 3")], ids=["class", "function", "value"]
)
def test_py_25_other_code_is_another_run(grid: Path, tmp_path: Path, old: str, new: str) -> None:
    out = tmp_path / "out"
    taut_lab.sweep(grid, out=out, controllers=module(tmp_path / "ours_two.py").controllers)
    # Where it is written makes no difference.
    same = module(tmp_path / "ours_three.py").controllers
    assert taut_lab.sweep(grid, out=out, controllers=same).ran == 0
    assert old in FILE
    other = module(tmp_path / "ours_four.py", FILE.replace(old, new)).controllers
    assert _carry.code(other["aimd"]) != _carry.code(same["aimd"])
    # Reno's two are there.
    again = taut_lab.sweep(grid, out=out, controllers=other)
    assert (again.ran, again.found) == (4, 2)


def test_py_25_what_a_controller_raises_is_named(grid: Path, tmp_path: Path) -> None:
    text = FILE.replace("return rest(window.cwnd, self.share)", 'raise KeyError("no such window")')
    with pytest.raises(taut_lab.SweepError, match="no such window") as caught:
        taut_lab.sweep(grid, out=tmp_path / "out", controllers=module(tmp_path / "ours_five.py", text).controllers)
    # The other point has its figures; a name that nobody gave is a mistake in the grid.
    assert {label.partition(",")[0] for label, _ in caught.value.failures} == {
        "two: congestion=aimd:share=0.8",
        "two: congestion=aimd:share=0.5",
    }
    assert "in on_loss, line 23" in str(caught.value)
    with pytest.raises(taut_lab.ScenarioError, match="aimd"):
        taut_lab.sweep(grid, out=tmp_path / "other")


def test_py_25_on_a_cluster_and_by_the_command(grid: Path, tmp_path: Path, cluster: Any) -> None:  # noqa: F811
    path = tmp_path / "ours_six.py"
    ours = module(path).controllers
    here = taut_lab.sweep(grid, out=tmp_path / "here", controllers=ours)
    there = taut_lab.sweep(grid, on=cluster.address, out=tmp_path / "there", controllers=ours)
    assert there.ran == 6 and there.rows.equals(here.rows) and there.text == here.text
    words = ["lab", "sweep", str(grid), "--out", str(tmp_path / "by-command"), "--ray", cluster.address]

    def said(*more: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHON": sys.executable}
        return subprocess.run([command(), *words, *more], env=env, capture_output=True, text=True)

    done = said("--controllers", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(here.text)
    # The same code by another way: the same rows.
    assert taut_lab.sweep(grid, out=tmp_path / "by-command", controllers=ours).ran == 0
    path.write_text("x = 1\n")
    wrong = said("--controllers", str(path))
    assert wrong.returncode == 1 and "there is no dict `controllers`" in wrong.stderr
