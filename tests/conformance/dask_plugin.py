"""A pytest plugin that replaces dask's schedulers in this process, and writes how each test ended.

``DASK_CONFORMANCE`` has the scheduler (``dask``, a runner of dropflow, or the address of a manager) and
``DASK_CONFORMANCE_REPORT`` the file. Dask's own tests mostly ask for the synchronous scheduler by its name, or for the
default of a collection.
"""

import json
import os
from pathlib import Path
from typing import Any

import dask
import pytest
from dask.base import named_schedulers

import dropflow.dask

__all__ = ["pytest_collectreport", "pytest_configure", "pytest_runtest_logreport", "pytest_sessionfinish"]

_REPLACED = ("sync", "synchronous", "single-threaded", "threads", "threading")
_outcomes: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Replace the schedulers of this process, and of each worker of xdist."""
    for marker in ("slow", "network", "avoid_ci", "gpu", "array_expr", "normal_and_array_expr"):
        config.addinivalue_line("markers", marker)
    name = os.environ["DASK_CONFORMANCE"]
    get: Any = dask.get
    if "://" in name:
        get = dropflow.dask.Scheduler(to=name, progress=False).get
    elif name != "dask":
        get = dropflow.dask.Scheduler(runner=name).get
    # Some tests of xarray call it, to count computations.
    dask.get = get
    for each in _REPLACED:
        named_schedulers[each] = get
    dask.config.set(scheduler=get)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember how a test ended: a failure of any phase counts."""
    is_last = report.failed or report.skipped or report.when == "call"
    if is_last and _outcomes.get(report.nodeid) != "failed":
        _outcomes[report.nodeid] = report.outcome


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Count a file that cannot be collected as a failed test."""
    if report.failed:
        _outcomes[report.nodeid] = "failed"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report. The workers of xdist write none."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["DASK_CONFORMANCE_REPORT"]).write_text(json.dumps(_outcomes), encoding="utf-8")
