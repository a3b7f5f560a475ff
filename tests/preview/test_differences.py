"""How two contents differ, as ``dropflow diff`` shows it."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from dropflow.preview.difference import differences


def _found(directory: Path, left: bytes, right: bytes, ending: str = "") -> list[str]:
    """Return how two contents differ."""
    paths = directory / f"left{ending}", directory / f"right{ending}"
    for path, content in zip(paths, (left, right), strict=True):
        path.write_bytes(content)
    return [*differences(*paths)]


def test_text_and_tables_differ_in_lines_and_fields(tmp_path: Path) -> None:
    """Of tables, the row and the column; of text, the line; nothing for the same contents."""
    table = b"name,flux\na,1.0\nb,2.0\n"

    assert _found(tmp_path, table, table.replace(b"2.0", b"2.5"), ".csv") == [
        "row 2, flux: 2.0 / 2.5",
        "1 line differs; 3 / 3 lines",
    ]
    assert _found(tmp_path, b"one\ntwo\n", b"one\n")[0] == "line 2: 'two' / none"
    assert _found(tmp_path, table, table, ".csv") == []


def test_bytes_differ_at_a_place_and_are_not_unpickled(tmp_path: Path) -> None:
    """Of pickles, the first byte that differs."""
    one, two = pickle.dumps((1, 2, b"\xff")), pickle.dumps((1, 3, b"\xff"))
    at = next(at for at, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)

    assert _found(tmp_path, one, two) == [f"the first byte that differs is number {at}"]


def test_fits_files_differ_in_cards_and_pixels(tmp_path: Path) -> None:
    """The largest and the largest relative difference, with their places; NaN on both sides is the same."""
    fits = pytest.importorskip("astropy.io.fits")
    pixels = np.array([[1.0, 2.0], [100.0, np.nan]], np.float32)
    other = np.array([[1.0, 3.0], [110.0, np.nan]], np.float32)
    for name, values, cards in (("a.fits", pixels, {"BUNIT": "Jy"}), ("b.fits", other, {"BUNIT": "K", "MORE": 1})):
        fits.PrimaryHDU(values, fits.Header(cards)).writeto(tmp_path / name)

    assert [*differences(tmp_path / "a.fits", tmp_path / "b.fits")] == [
        "BUNIT = Jy / K",
        "MORE is on the right only",
        "2 numbers of 4 differ (0.5 of all)",
        "largest difference 10 at [1, 0]: 100.0 / 110.0",
        "largest relative difference 0.333333 at [0, 1]: 2.0 / 3.0",
    ]


def test_arrays_of_other_shapes_or_types_differ_in_these(tmp_path: Path) -> None:
    """Large integers are compared exactly."""
    for name, values in (("a", np.array([2**60, 1])), ("b", np.array([2**60 + 1, 1])), ("c", np.zeros((3, 2)))):
        np.save(tmp_path / name, values)

    assert next(differences(tmp_path / "a.npy", tmp_path / "b.npy")) == "1 number of 2 differs (0.5 of all)"
    assert [*differences(tmp_path / "a.npy", tmp_path / "c.npy")] == ["shape (2,) / (3, 2)"]
