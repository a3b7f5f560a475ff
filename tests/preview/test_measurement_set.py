"""The summary of measurement sets."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropflow.preview.look import preview
from dropflow.preview.source import DirectorySource, PreviewQuery

_TABLES = ("", "ANTENNA", "SPECTRAL_WINDOW")


@pytest.fixture
def observed(tmp_path: Path) -> Path:
    """A measurement set of three antennas and four times, with two columns of visibilities."""
    tables = pytest.importorskip("casacore.tables", reason="python-casacore is not installed: it has 115 MB")
    path = str(tmp_path / "a.ms")
    columns = [
        tables.makearrcoldesc("DATA", 0j, ndim=2, valuetype="complex"),
        tables.makearrcoldesc("MODEL_DATA", 0j, ndim=2, valuetype="complex"),
    ]
    made = tables.default_ms(path, tables.maketabdesc(columns))
    made.addrows(12)
    for row in range(12):
        made.putcell("TIME", row, 5_000_000_000.0 + 10 * (row // 3))
        made.putcell("DATA", row, np.full((2, 4), 3 + 4j) * (row + 1))
        made.putcell("MODEL_DATA", row, np.full((2, 4), 1j))
        made.putcell("FLAG", row, np.full((2, 4), row == 11))
    made.close()

    def fill(name: str, rows: int, **values: Any) -> None:
        with tables.table(f"{path}/{name}", readonly=False, ack=False) as table:
            table.addrows(rows)
            for column, value in values.items():
                for row in range(rows):
                    table.putcell(column, row, value[row])

    fill("ANTENNA", 3, NAME=["A0", "A1", "A2"])
    fill("FIELD", 1, NAME=["M 31"])
    fill("OBSERVATION", 1, TELESCOPE_NAME=["WSRT"])
    fill("SPECTRAL_WINDOW", 1, CHAN_FREQ=[np.array([1.4e9, 1.5e9])])
    fill("POLARIZATION", 1, CORR_TYPE=[np.array([9, 10, 11, 12])])
    return Path(path)


def test_it_says_what_was_observed(observed: Path) -> None:
    """Telescope, fields, antennas, times, channels, correlations and flags, and the amplitudes of a column."""
    found = preview(DirectorySource(observed))
    facts = dict(found.facts)

    assert (found.format, found.parts, found.trouble) == ("Measurement set", ("DATA", "MODEL_DATA"), "")
    assert (facts["Rows"], facts["Times"]) == ("12", "4")
    assert (facts["Begin"], facts["End"]) == ("2017-04-27 08:53:20 UTC", "2017-04-27 08:53:50 UTC")
    assert (facts["Telescope"], facts["Fields"], facts["Antennas"]) == ("WSRT", "M 31", "3: A0, A1, A2")
    assert facts["Spectral window 0"] == "2 channels, 1,400 to 1,500 MHz"
    assert facts["Correlations"] == "XX, XY, YX, YY"
    assert facts["Flagged"] == "8.33 %"
    assert found.line is not None
    assert found.line.highs == (*(5.0 * (row + 1) for row in range(11)), None)
    assert preview(DirectorySource(observed), PreviewQuery(part=1)).line != found.line


def test_a_damaged_one_has_its_problem(observed: Path) -> None:
    """A file that is cut off, and a link out of it, which is not followed."""
    with observed.joinpath("table.dat").open("r+b") as file:
        file.truncate(100)
    assert "the measurement set cannot be read" in preview(DirectorySource(observed)).trouble
    observed.joinpath("more").symlink_to("/etc")
    assert "symbolic links" in preview(DirectorySource(observed)).trouble


def test_without_casacore_its_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names the extra that has it."""
    for name in ("casacore", "casacore.tables"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in _TABLES:
        tmp_path.joinpath(name).mkdir(exist_ok=True)
        tmp_path.joinpath(name, "table.dat").write_bytes(b"x")
    found = preview(DirectorySource(tmp_path))

    assert "measurement sets need the package casacore" in found.trouble
    assert "radio" in found.trouble
    assert len(found.rows) == 3
