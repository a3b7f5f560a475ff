"""The radio pipeline finds its sources with DP3, WSClean and PyBDSF, on one machine and when a node is lost."""

import csv
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from dropflow.failure import Severity
from dropflow.sessions import local_run
from dropflow.sessions.local_run import prepare_directory
from dropflow.states import SessionState
from tests.e2e.cluster import Cluster, finished, underway
from tests.processes import run
from translator.pipeline import check, translate

RADIO = Path(__file__).resolve().parents[2] / "examples" / "radio"
GRAPH = RADIO / "radio.graph"
SKY = ((180.00, -44.92, 10.0), (180.12, -44.95, 5.0), (179.86, -45.09, 3.0))
BEAM = 50 / 3600


def _needs_tools() -> None:
    """Skip the test if a program or a module of the pipeline is not installed."""
    path = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))
    missing = [name for name in ("wsclean", "DP3.py") if not shutil.which(name, path=path)]
    missing += [name for name in ("astropy", "bdsf", "casacore", "matplotlib") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; make radio installs them")


def _check_files(files: Path) -> None:
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


def test_the_graph_is_what_its_script_draws_and_has_no_findings() -> None:
    """``python examples/radio/pipeline.py`` writes the file, in which a check finds nothing."""
    spec = importlib.util.spec_from_file_location("pipeline", RADIO / "pipeline.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.radio().document() == GRAPH.read_bytes()
    assert [found for found in check(GRAPH)[1] if found.severity is not Severity.INFO] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_sources_are_found_without_the_broken_band(tmp_path: Path) -> None:
    """Fluxes are right within 2 %, places within a fifth of the beam, and the header says what is missing."""
    _needs_tools()
    result = local_run.run(translate(GRAPH).graph, directory=prepare_directory(tmp_path / "run"), workers=2)

    assert result.status is SessionState.FINISHED
    assert result.states == {"COMPLETED": 407, "ERROR": 26, "SKIPPED": 0}
    assert len(result.failures) == 4, "the measurement sets of the broken band"
    _check_files(tmp_path / "run" / "files")


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_the_sources_are_found_after_the_loss_of_a_node(tmp_path: Path) -> None:
    """Measurement sets cross between two nodes, and what was on the killed one is made again on the other."""
    _needs_tools()
    with Cluster(tmp_path) as cluster:
        nodes = cluster.nodes("a", "b")
        island = cluster.island(*nodes)
        submitted = run(tmp_path, "submit", GRAPH, "--name", "radio", "--to", island.ready["url"])
        assert submitted.returncode == 0, submitted.stderr
        client = cluster.client(island)
        assert underway(client, "radio", 120)
        nodes[0].process.kill()
        detail = finished(client, "radio", 600.0)
        fetched = run(tmp_path, "fetch", "radio", "--to", island.ready["url"], "-o", tmp_path / "out")

    assert (detail.status, detail.members) == ("FINISHED", ("b",))
    assert fetched.returncode == 0, fetched.stderr
    _check_files(tmp_path / "out" / "files")
