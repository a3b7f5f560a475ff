"""Functions of radio.palette give right images and refuse what is wrong.

`tests.examples.test_radio` runs all entries with the real tools, where ``make radio`` has installed them.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from palettes.radio import arithmetic, concat, moments, mosaic, split, update
from tests.lazy_module import LazyModule

fits = LazyModule("astropy.io.fits")
pytestmark = pytest.mark.skipif(find_spec("astropy") is None, reason="the extra 'formats' is not installed")

CELL = 0.5
"""Degrees of a pixel."""


def _image(path: Path, data: Any, *, corner: tuple[int, int] = (0, 0), **cards: Any) -> str:
    """Write an image whose first pixel is `corner` (row, column) of one sky, which has its reference at (0, 0)."""
    header = fits.Header()
    header["CTYPE1"], header["CTYPE2"] = "RA---SIN", "DEC--SIN"
    header["CRVAL1"], header["CRVAL2"], header["CDELT1"], header["CDELT2"] = 180.0, -45.0, -CELL, CELL
    header["CRPIX1"], header["CRPIX2"] = 1.0 - corner[1], 1.0 - corner[0]
    header.update(cards)
    fits.writeto(path, np.asarray(data, np.float32), header)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "expected"), [("+", [5.0, 10.0]), ("-", [3.0, 6.0]), ("*", [4.0, 16.0]), ("/", [4.0, 4.0])]
)
def test_two_images_are_combined(operation: str, expected: list[float], tmp_path: Path) -> None:
    """Each operation is that of its sign, in this order, and the header is that of the first image."""
    first = _image(tmp_path / "a.fits", [[4.0, 8.0]], OBJECT="first")
    other = _image(tmp_path / "b.fits", [[1.0, 2.0]], OBJECT="second")
    arithmetic(first, other, str(tmp_path / "c.fits"), operation)

    assert fits.getdata(tmp_path / "c.fits").tolist() == [expected]
    assert fits.getheader(tmp_path / "c.fits")["OBJECT"] == "first"


@pytest.mark.parametrize("kind", ["u1", "u2", "i2"])
def test_images_of_integers_do_not_wrap(kind: str, tmp_path: Path) -> None:
    """The frames of a camera are such: a dark one may be brighter, and sums may be larger than the type."""
    paths = [str(tmp_path / f"{name}.fits") for name in "abcd"]
    most = np.iinfo(kind).max
    for path, value in zip(paths, (1, most), strict=False):
        fits.writeto(path, np.array([[value]], kind))
    arithmetic(paths[0], paths[1], paths[2], "-")
    arithmetic(paths[1], paths[1], paths[3], "+")

    assert (fits.getdata(paths[2]).tolist(), fits.getdata(paths[3]).tolist()) == ([[1.0 - most]], [[2.0 * most]])


def test_infinite_pixels_are_blank(tmp_path: Path) -> None:
    """They count as pixels without data, in a mosaic and in a moment."""
    first, second = _image(tmp_path / "a.fits", [[np.inf, 2.0]]), _image(tmp_path / "b.fits", [[4.0, -np.inf]])
    mosaic([first, second], str(tmp_path / "whole.fits"))
    cube = _image(tmp_path / "cube.fits", [[[np.inf]], [[3.0]]], CRPIX3=1.0, CRVAL3=10.0, CDELT3=2.0)
    moments(cube, str(tmp_path / "moment.fits"), 0)

    assert fits.getdata(tmp_path / "whole.fits").tolist() == [[4.0, 2.0]]
    assert fits.getdata(tmp_path / "moment.fits").tolist() == [[[6.0]]]


def test_a_mosaic_has_each_image_at_its_place(tmp_path: Path) -> None:
    """Pixels of several images are their mean, those of none are blank, and the sky stays where it was."""
    first = _image(tmp_path / "a.fits", [[1.0, 2.0], [3.0, np.nan]])
    second = _image(tmp_path / "b.fits", [[10.0, 20.0]], corner=(1, 1))
    third = _image(tmp_path / "c.fits", [[7.0]], corner=(-1, 0))
    mosaicked = tmp_path / "whole.fits"
    mosaic([first, second, third], str(mosaicked))

    blank = np.nan
    expected = [[7.0, blank, blank], [1.0, 2.0, blank], [3.0, 10.0, 20.0]]
    np.testing.assert_array_equal(fits.getdata(mosaicked), np.asarray(expected, np.float32))
    assert (fits.getheader(mosaicked)["CRPIX1"], fits.getheader(mosaicked)["CRPIX2"]) == (1.0, 2.0)


def test_a_mosaic_of_one_image_is_that_image(tmp_path: Path) -> None:
    """A single path is taken as a list of one."""
    mosaic(_image(tmp_path / "a.fits", [[1.0, 2.0]]), str(tmp_path / "whole.fits"))
    assert fits.getdata(tmp_path / "whole.fits").tolist() == [[1.0, 2.0]]


def test_images_of_other_pixels_are_refused(tmp_path: Path) -> None:
    """Images of different pixel sizes are not averaged: the error names the card of the header."""
    first = _image(tmp_path / "a.fits", [[1.0]])
    second = _image(tmp_path / "b.fits", [[1.0]], CDELT1=-0.25)
    with pytest.raises(ValueError, match="different values of CDELT1"):
        mosaic([first, second], str(tmp_path / "whole.fits"))


@pytest.mark.parametrize(("order", "expected"), [(0, 8.0), (1, 11.5), (2, np.sqrt(0.75))])
def test_moments_of_a_line(order: int, expected: float, tmp_path: Path) -> None:
    """A line of 1 Jy at 10 and 3 Jy at 12, in channels of 2: integral, mean coordinate and dispersion."""
    cube = _image(tmp_path / "cube.fits", [[[1.0]], [[3.0]]], CRPIX3=1.0, CRVAL3=10.0, CDELT3=2.0)
    moments(cube, str(tmp_path / "moment.fits"), order)
    assert fits.getdata(tmp_path / "moment.fits").ravel().tolist() == [pytest.approx(expected)]
    assert fits.getheader(tmp_path / "moment.fits")["CRVAL3"] == 11.0


class _Table:
    """A table as casacore has it, of a number of rows; writes down how it is used. Anything else is an error."""

    def __init__(self, log: list[Any], rows: int = 3) -> None:
        self.log, self.rows = log, rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.log.append("closed")

    def query(self, condition: str) -> "_Table":
        return _Table(self.log, 0 if condition == "FALSE" else 1)

    def nrows(self) -> int:
        return self.rows

    def copy(self, path: str, *, deep: bool) -> "_Table":
        self.log.append((path, self.rows, deep))
        return self

    def close(self) -> None:
        self.log.append("closed")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done with a stand-in for casacore's tables: paths and how they are opened, copies, commands."""
    done: list[Any] = []

    def table(name: Any, **how: Any) -> _Table:
        assert how.pop("ack") is False
        done.append((name, how))
        return _Table(done)

    def taql(command: str, *, locals: dict[str, Any]) -> None:  # noqa: A002 - as in casacore
        done.append((command, sorted(locals)))

    tables = SimpleNamespace(table=table, taql=taql)
    monkeypatch.setitem(sys.modules, "casacore", SimpleNamespace(tables=tables))
    monkeypatch.setitem(sys.modules, "casacore.tables", tables)
    return done


def test_a_command_changes_the_table_that_it_names(log: list[Any]) -> None:
    """The table is opened for writing, stands for $1 in the command, and is closed."""
    update("one.ms", "UPDATE $1 SET FLAG=T")
    assert log == [("one.ms", {"readonly": False}), ("UPDATE $table SET FLAG=T", ["table"]), "closed"]


@pytest.mark.parametrize(("condition", "rows"), [("ANTENNA1=0", 1), ("", 3)])
def test_rows_are_written_with_all_subtables(condition: str, rows: int, log: list[Any]) -> None:
    """The rows of the condition, or all without one, are copied in depth."""
    split("one.ms", "part.ms", condition)
    assert log == [("one.ms", {}), ("part.ms", rows, True), "closed", "closed"]


def test_a_condition_without_rows_is_refused(log: list[Any]) -> None:
    """A part without rows is an error with the condition, and nothing is written."""
    with pytest.raises(ValueError, match=r"no row of one\.ms fulfils the condition FALSE"):
        split("one.ms", "part.ms", "FALSE")
    assert log == [("one.ms", {}), "closed"]


@pytest.mark.parametrize("given", ["one.ms", ["one.ms", "two.ms"]])
def test_measurement_sets_are_joined(given: str | list[str], log: list[Any]) -> None:
    """One path is taken as a list of one; the whole is copied in depth, and closed."""
    concat(given, "whole.ms")
    assert log == [(given if isinstance(given, list) else [given], {}), ("whole.ms", 3, True), "closed"]
