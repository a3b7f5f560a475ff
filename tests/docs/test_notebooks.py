"""The notebooks of the documents run, and find what they say."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from execute_notebook import execute  # noqa: E402 - the same as makes the outputs in the documents


@pytest.mark.exhaustive
def test_the_image_of_a_simulated_sky_has_its_sources() -> None:
    """Two nodes compute it from chunked arrays of xarray. Each source is found where it was put, with its flux."""
    pytest.importorskip("xarray")
    names: dict[str, Any] = {}
    try:
        execute(ROOT / "docs" / "tutorial" / "arrays.ipynb", names)
    finally:
        if "cluster" in names:
            names["cluster"].terminate()
    picture, sky, cell = names["picture"], names["sky"], names["cell"]
    background = np.median(np.abs(picture))

    assert names["cluster"].returncode == 0
    assert len(sky) == 4
    for (l, m), flux in sky.items():  # noqa: E741 - the names of direction cosines
        row, column = (round(angle / cell) + len(picture) // 2 for angle in (m, l))
        near = picture[row - 1 : row + 2, column - 1 : column + 2]
        assert 0.8 * flux < near.max() < 1.2 * flux
        assert near.max() > 20 * background
