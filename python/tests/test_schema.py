"""The schema of scenarios, by a validator that is not ours. The number is that of the statement in docs/spec/python.md."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from typing import Any

import pytest

import taut_lab

jsonschema = pytest.importorskip("jsonschema")
tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")


@pytest.fixture(scope="module")
def validator() -> Any:
    command = os.environ.get("TAUT")
    if command is None:
        pytest.fail("TAUT must name the command, as `make python-test` does")
    said = subprocess.run([command, "lab", "schema"], check=True, capture_output=True, text=True)
    schema = json.loads(said.stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def test_py_23_scenarios_are_valid_and_mistakes_are_not(validator: Any) -> None:
    for name, scenario in taut_lab.scenarios().items():
        errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(tomllib.loads(scenario.text))]
        assert errors == [], name


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("link", "rate"), "20 parsecs"),
        (("link", "rate"), 5),
        (("link", "dealy"), "5ms"),
        (("link", "delay"), "5 lightyears"),
        (("flows", 0, "app"), "bulky"),
        (("flows", 0, "count"), 0),
        (("flows", 0, "count"), 20_001),
        (("topology",), {"kind": "ring"}),
        (("measure", 0), "goodputt"),
        (("hosts",), {"sender": {"mtu": 575}}),
        (("link", "faults"), {"loss": 1.5}),
        (("link", "faults"), {"loss": "150%"}),
        (("title",), None),
    ],
)
def test_py_23_the_parser_refuses_what_the_schema_refuses(validator: Any, path: tuple[Any, ...], value: Any) -> None:
    whole = {
        "title": "small",
        "duration": "1s",
        "measure": ["goodput"],
        "link": {"rate": "10mbit"},
        "flows": [{"app": "bulk"}],
    }
    assert validator.is_valid(whole)
    wrong = copy.deepcopy(whole)
    at: Any = wrong
    for word in path[:-1]:
        at = at[word]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    assert not validator.is_valid(wrong)
    with pytest.raises(taut_lab.ScenarioError):
        taut_lab.run(wrong)


@pytest.mark.parametrize("loss", [0, 1, 0.005, "0.5%", "100%", " 2.5 % ", "0.01"])
def test_py_23_shares_in_every_way(validator: Any, loss: Any) -> None:
    whole = {
        "title": "small",
        "duration": "1s",
        "measure": ["goodput"],
        "link": {"rate": "10mbit", "faults": {"loss": loss}},
        "flows": [{"app": "bulk"}],
    }
    assert validator.is_valid(whole)
    taut_lab.run({**whole, "duration": "10ms"}, keep="none")
