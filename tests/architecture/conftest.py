"""Garbage collections, which these tests do without."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _without_garbage_collections() -> Iterator[None]:
    """Parse files without looking for garbage: a syntax tree is a million objects, and looking is half of the time."""
    gc.disable()
    yield
    gc.enable()
