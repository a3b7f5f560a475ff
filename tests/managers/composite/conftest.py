"""Composites over managers in memory."""

from collections.abc import Iterator

import pytest

from tests.managers.composite.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world without managers."""
    made = World()
    yield made
    made.close()
