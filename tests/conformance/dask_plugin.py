"""A pytest plugin that replaces dask's schedulers in this process, and writes how each test ended.

``DASK_CONFORMANCE`` has the scheduler (``dask``, a runner of dropflow, or the address of a manager),
``DASK_CONFORMANCE_PART`` the part of the tests that runs (``2/5``), and ``DASK_CONFORMANCE_REPORT`` the file. The tests
mostly ask for the synchronous scheduler by its name, or for the default of a collection.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import dask
import pytest
from dask.base import named_schedulers

import dropflow.dask

_REPLACED = ("sync", "synchronous", "single-threaded", "threads", "threading")
_MARKERS = ("slow", "network", "avoid_ci", "gpu", "array_expr", "normal_and_array_expr", "flaky", "mypy")
_COMPUTED = "computations"
_outcomes: dict[str, list[Any]] = {}
"""For each test: how it ended, and how many graphs it had the scheduler compute."""
_computed = 0


def pytest_configure(config: pytest.Config) -> None:
    """Replace the schedulers of this process, and of each worker of xdist."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    name = os.environ["DASK_CONFORMANCE"]
    compute: Any = dask.get
    if "://" in name:
        compute = dropflow.dask.Scheduler(to=name, progress=False).get
    elif name != "dask":
        compute = dropflow.dask.Scheduler(runner=name).get

    def get(dsk: Any, keys: Any, **kwargs: Any) -> Any:
        global _computed  # noqa: PLW0603 - the hooks of a plugin are functions
        _computed += 1
        return compute(dsk, keys, **kwargs)

    # Some tests of xarray call it, to count computations.
    dask.get = get
    for each in _REPLACED:
        named_schedulers[each] = get
    dask.config.set(scheduler=get)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other parts. The checksum of its name says to which part a test belongs."""
    number, _, count = os.environ["DASK_CONFORMANCE_PART"].partition("/")
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_chosen = crc32(item.nodeid.encode()) % int(count) == int(number) - 1
        (chosen if is_chosen else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Count the graphs that a test has computed."""
    before = _computed
    try:
        yield
    finally:
        item.user_properties.append((_COMPUTED, _computed - before))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember how a test ended: a failure of any phase counts."""
    is_last = report.failed or report.skipped or report.when == "call"
    if is_last and _outcomes.get(report.nodeid, [""])[0] != "failed":
        _outcomes[report.nodeid] = [report.outcome, dict(report.user_properties).get(_COMPUTED, 0)]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Count a file that cannot be collected as a failed test."""
    if report.failed:
        _outcomes[report.nodeid] = ["failed", 0]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report. The workers of xdist write none."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["DASK_CONFORMANCE_REPORT"]).write_text(json.dumps(_outcomes), encoding="utf-8")
