"""With TAUT_REQUIRE_ALL, as `make python-test` sets it, a test that is skipped is a failure: all that the tests need is there."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return required((yield))


def required(report: Report) -> Report:
    # File, line and reason of a skip.
    why = report.longrepr
    if report.outcome == "skipped" and isinstance(why, tuple) and "TAUT_REQUIRE_ALL" in os.environ:
        report.outcome, report.longrepr = "failed", f"{why[0]}:{why[1]}: {why[2]} (TAUT_REQUIRE_ALL: nothing may be skipped)"
    return report
