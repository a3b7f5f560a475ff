"""Composites over managers in memory."""

from collections.abc import Iterator

import pytest

from tests.managers.composite.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """No managers yet."""
    made = World()
    yield made
    made.close()
