"""Pictures, the notebook, and types."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_lab import HERE, ROOT, SMALL

import taut_lab
from taut_lab import _plot

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def result() -> taut_lab.Result:
    flows = '\n[[variants]]\nname = "reno"\n\n[[variants]]\nname = "cubic"\nset = { "flows.0.options.congestion" = "cubic" }\n'
    return taut_lab.run(SMALL + flows, seeds=2)


@pytest.fixture(scope="module")
def several() -> taut_lab.Result:
    """Twelve bulk flows and one with requests, which lose packets."""
    flows = SMALL.replace('app = "bulk"', 'app = "bulk"\ncount = 12\n\n[[flows]]\napp = "rr"\nthink = "10ms"\n')
    return taut_lab.run(flows + '\n[[variants]]\nname = "reno"\n', seeds=1)


def test_py_12_colours_are_those_of_taut_plot() -> None:
    theme = (ROOT / "crates/taut-lab/src/report/theme.rs").read_text()
    inks = re.findall(r"const ([A-Z]+): Self = Self\((\d+)\);", theme)
    palette = re.search(r"const PALETTE.*?\];", theme, re.S)
    assert palette is not None
    colours = re.findall(r'\("(#\w+)", "(#\w+)"\)', palette[0])
    assert {name.lower(): colours[int(at)] for name, at in inks} == _plot.PALETTE
    series = re.search(r"const SERIES.*?\];", theme, re.S)
    assert series is not None
    assert tuple(name.lower() for name in re.findall(r"Self::([A-Z]+)", series[0])) == _plot.SERIES
    neutrals = re.findall(r'\("(bg|fg|mu|gr)", "(#\w+)", "(#\w+)"\)', theme)
    assert {name: (light, dark) for name, light, dark in neutrals} == _plot.NEUTRALS
    lines = re.search(r"const LINES.*?\];", theme, re.S)
    assert lines is not None
    assert tuple(name.lower() for name in re.findall(r"Self::([A-Z]+)", lines[0])) == _plot.LINES
    figures = (ROOT / "crates/taut-lab/src/report/pictures/mod.rs").read_text()
    names = re.search(r"const ALL:.*?\];", figures, re.S)
    assert names is not None
    assert tuple(re.findall(r'\("(\w+)", ', names[0])) == _plot.NAMES
    queues = (ROOT / "crates/taut-lab/src/report/pictures/queues.rs").read_text()
    parts = re.findall(r'\("([^"]+)", Ink::([A-Z]+)\)', queues)
    assert tuple((name, ink.lower()) for name, ink in parts) == _plot.QUEUES
    blocked = (ROOT / "crates/taut-lab/src/report/pictures/blocked.rs").read_text()
    gates = re.findall(r"Gate::(\w+) => Ink::([A-Z]+)", blocked)
    assert {re.sub(r"(?<!^)(?=[A-Z])", "-", gate).lower(): ink.lower() for gate, ink in gates} == _plot.GATES


@pytest.mark.parametrize("name", [*_plot.NAMES, "metric:goodput", "retransmits"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_py_12_every_picture_is_drawn(several: taut_lab.Result, name: str, theme: str) -> None:
    figure = several.plot(name, theme=theme)  # type: ignore[arg-type]
    assert [axes for axes in figure.axes if axes.get_visible() and axes.has_data()]
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert file.getvalue()[:4] == b"\x89PNG"
    background = "#ffffff" if theme == "light" else "#15181d"
    from matplotlib.colors import to_hex

    assert to_hex(figure.get_facecolor()) == background


def test_py_12_queues_hold_what_the_intervals_say(result: taut_lab.Result) -> None:
    run = result.runs[0]
    times, parts = _plot.stack(result, run)
    rows = result.intervals.to_pandas()
    rows = rows[(rows.variant == run.variant) & (rows.seed == run.seed)]
    assert times == list(rows.t_s)
    # All bytes, wherever they wait, are those in flight and those unsent, as the device's are counted in flight until acknowledged.
    assert parts[1] == list(rows.bottleneck_bytes)
    assert parts[3] == list(rows.unsent_bytes)
    assert max(parts[1]) > 50_000, "the bottleneck's queue of 50 packets was full"


def test_py_12_each_flow_has_what_the_tables_say(several: taut_lab.Result) -> None:
    import math

    goodput = several.goodput.to_pandas()
    (axes,) = several.plot("goodput").axes
    # Of thirteen flows, the ten that are farthest from the mean of all, and a band from the least to the greatest of the others.
    flows = several.flows.to_pandas()
    far = (flows.goodput_bps - flows.goodput_bps.mean()).abs().sort_values(ascending=False, kind="stable")
    expected = sorted(flows.flow[far.index[:10]])
    names = dict(zip(flows.flow, flows.name))
    assert [line.get_label() for line in axes.lines] == [names[flow] for flow in expected]
    assert len(axes.collections) == 1
    for flow, line in zip(expected, axes.lines):
        rows = goodput[goodput.flow == flow]
        drawn = [(t, y) for t, y in zip(line.get_xdata(), line.get_ydata()) if not math.isnan(y)]
        assert [t for t, _ in drawn] == list(rows.t_s)
        assert all(math.isclose(y * 1e6, bps, rel_tol=1e-9, abs_tol=1e-6) for (_, y), bps in zip(drawn, rows.goodput_bps))
    fairness = several.fairness.to_pandas()
    whole, bulk = several.plot("fairness").axes
    for axes, column in ((whole, "fairness"), (bulk, "fairness_of_0")):
        (line,) = axes.lines
        pairs = zip(line.get_ydata(), fairness[column])
        assert all(y == of or (math.isnan(y) and math.isnan(of)) for y, of in pairs)
    # A panel for all together, and one for each flow, of which the first eight are known.
    together, each = several.plot("rtt").axes
    assert (len(together.lines), len(each.lines)) == (1, 8)
    counts = several.histograms.to_pandas()
    counts = counts[counts["name"] == "rtt"]
    for line, flow in zip(each.lines, range(8)):
        of = counts[counts.flow == flow]
        shares = list(line.get_ydata())
        assert shares[0] == 0 and shares[-1] == 1 and len(shares) == 2 * len(of)
        assert math.isclose(shares[1], of["count"].iloc[0] / of["count"].sum())
    assert len(several.plot("queues").axes) == 2 and len(several.plot("bursts").axes) == 3


def test_py_12_each_loss_has_its_packets(several: taut_lab.Result) -> None:
    losses = several.losses.to_pandas()
    assert len(losses) > 5
    figure = several.plot("losses")
    shown = _plot.spread(len(losses), _plot.MOST_LOSSES)
    assert shown[0] == 0 and shown[-1] == len(losses) - 1
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_xlim() for axes in panels] == [(losses.from_s[at], losses.to_s[at]) for at in shown]
    kinds = {label for axes in panels for label in axes.get_legend_handles_labels()[1]}
    assert {"sent", "dropped on the way", "retransmitted"} <= kinds


def test_py_12_errors_say_what_there_is(result: taut_lab.Result) -> None:
    with pytest.raises(ValueError, match="no picture and no metric of this scenario is called quues; pictures are goodput, fairness, queues, "):
        result.plot("quues")
    with pytest.raises(ValueError, match="no run has case '' and variant 'vegas'; there are reno, cubic"):
        result.plot(variants=["vegas"])
    for name in ("latency", "fairness", "flows"):
        with pytest.raises(ValueError, match=f"the runs have nothing for {name}"):
            result.plot(name)
    with pytest.raises(ValueError, match="the runs have nothing for sequence"):
        taut_lab.run(SMALL, seeds=1, keep="none").plot("sequence")


@pytest.mark.parametrize("notebook", sorted((HERE.parent / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_py_13_notebooks_run(notebook: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    book = nbformat.read(notebook, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert sum(len(cell.source.splitlines()) for cell in code) <= 20
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    kinds = [output.get("data", {}).keys() for cell in code for output in cell.outputs]
    assert any("image/png" in kind for kind in kinds)
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)


def test_py_13_the_samples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/python.md").read_text(), re.S)
    assert len(samples) == 4
    # A sample leaves files.
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for sample in samples:
        exec(sample, names)
    result = names["result"]
    assert isinstance(result, taut_lab.Result)
    assert [run.variant for run in result.runs] == ["aimd:share=0.7", "reno"]
    swept = names["swept"]
    assert isinstance(swept, taut_lab.Sweep)
    assert len(swept.rows) == 16
    ours = names["ours"]
    assert isinstance(ours, taut_lab.Sweep)
    # Three points, four variants, two seeds.
    assert len(ours.rows) == 24


def test_py_14_types_are_whole() -> None:
    pytest.importorskip("mypy")
    package = Path(taut_lab.__file__).parent
    assert (package / "py.typed").exists()
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "-p", "taut_lab"],
        capture_output=True,
        text=True,
        cwd=HERE,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_py_14_stubs_have_what_the_module_has() -> None:
    from taut_lab import _native

    stub = (Path(taut_lab.__file__).parent / "_native.pyi").read_text()
    for name in dir(_native):
        if name.startswith("__") and name != "__version__":
            continue
        assert re.search(rf"^(class|def) {name}\b|^{name}:", stub, re.M), name
        thing = getattr(_native, name)
        if isinstance(thing, type):
            body = re.search(rf"^class {name}:.*?(?=^@final|^def )", stub, re.M | re.S)
            assert body is not None
            for member in vars(thing):
                if not member.startswith("__"):
                    assert re.search(rf"^    (def {member}\(|{member}:)", body[0], re.M), f"{name}.{member}"
