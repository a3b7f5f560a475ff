"""Simulated processes that crash close none of their files, as real ones do not."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Accept files that are left open."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"))


@pytest.fixture(autouse=True, scope="module")
def _remove_crashed_processes() -> Iterator[None]:
    """Remove what is left of crashed processes while their open files are accepted.

    Once for a module: the collection takes half a second in a process that has imported what all tests need.
    """
    yield
    gc.collect()
