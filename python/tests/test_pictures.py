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
    queues = (ROOT / "crates/taut-lab/src/report/queues.rs").read_text()
    parts = re.findall(r'\("([^"]+)", Ink::([A-Z]+)\)', queues)
    assert tuple((name, ink.lower()) for name, ink in parts) == _plot.QUEUES
    blocked = (ROOT / "crates/taut-lab/src/report/blocked.rs").read_text()
    gates = re.findall(r"Gate::(\w+) => Ink::([A-Z]+)", blocked)
    assert {re.sub(r"(?<!^)(?=[A-Z])", "-", gate).lower(): ink.lower() for gate, ink in gates} == _plot.GATES


@pytest.mark.parametrize("name", ["queues", "window", "sequence", "rtt", "bursts", "blocked", "goodput"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_py_12_every_picture_is_drawn(result: taut_lab.Result, name: str, theme: str) -> None:
    figure = result.plot(name, theme=theme)  # type: ignore[arg-type]
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


def test_py_12_errors_say_what_there_is(result: taut_lab.Result) -> None:
    with pytest.raises(ValueError, match="no picture and no metric of this scenario is called quues; pictures are queues, "):
        result.plot("quues")
    with pytest.raises(ValueError, match="no run has case '' and variant 'vegas'; there are reno, cubic"):
        result.plot(variants=["vegas"])
    with pytest.raises(ValueError, match="the runs have nothing for latency"):
        result.plot("latency")
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
    samples = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S)
    assert len(samples) == 3
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
