"""The radio pipeline: its files, tools and results."""

import csv
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

RADIO = Path(__file__).resolve().parents[2] / "examples" / "radio"
GRAPH = RADIO / "radio.graph"
SKY = ((180.00, -44.92, 10.0), (180.12, -44.95, 5.0), (179.86, -45.09, 3.0))
BEAM = 50 / 3600


def needs_tools() -> None:
    """Skip the test if a program or a module of the pipeline is not installed."""
    path = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))
    missing = [name for name in ("wsclean", "DP3.py") if not shutil.which(name, path=path)]
    missing += [name for name in ("astropy", "bdsf", "casacore", "matplotlib") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; make radio installs them")


def check_files(files: Path) -> None:
    """Check the sources, the fraction in the header, the blank plane and the picture."""
    from astropy.io import fits  # noqa: PLC0415 - an extra

    with (files / "catalogue.csv").open(encoding="utf-8", newline="") as stream:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(stream)]
    assert [list(row) for row in rows] == [["ra", "dec", "flux"]] * len(SKY)
    for row, (ra, dec, flux) in zip(rows, SKY, strict=True):
        assert row["flux"] == pytest.approx(flux, rel=0.02)
        assert abs(row["ra"] - ra) < BEAM / 5
        assert abs(row["dec"] - dec) < BEAM / 5
    for name in ("cube.fits", "mean.fits"):
        assert fits.getheader(files / name)["MISSING"] == 1 / 8
    cube = fits.getdata(files / "cube.fits")
    assert [bool(plane.any() and (plane == plane).all()) for plane in cube] == [band != 5 for band in range(8)]  # noqa: PLR0124 - no NaN
    assert (files / "sky.png").read_bytes().startswith(b"\x89PNG")
    assert "3 of 3 sources are right, 3 were found" in (files / "report.txt").read_text(encoding="utf-8")
