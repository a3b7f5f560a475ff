"""The radio pipeline finds its sources with DP3, WSClean and PyBDSF, on one machine, four nodes, and three of these."""

import gc
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dropflow.failure import Severity
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import prepare_directory
from dropflow.states import SessionState
from dropflow.testing.attempts import Given, Wanted, try_app
from tests.e2e.cluster import Cluster, finished, underway
from tests.examples.radio import GRAPH, RADIO, check_files, needs_tools
from tests.processes import run
from translator.pipeline import examine, translate


def _pipeline() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pipeline", RADIO / "pipeline.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_graph_is_what_its_script_draws_and_has_no_findings() -> None:
    """``python examples/radio/pipeline.py`` writes the file, in which a check finds nothing."""
    module = _pipeline()

    assert module.radio().document() == GRAPH.read_bytes()
    assert [found for found in examine(GRAPH).problems if found.severity is not Severity.INFO] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_sources_are_found_without_the_broken_band(tmp_path: Path) -> None:
    """Fluxes are right within 2 %, places within a fifth of the beam, and the header says what is missing."""
    needs_tools()
    result = local_run.run(translate(GRAPH).graph, prepare_directory(tmp_path / "run"), RunOptions(workers=2))

    assert result.status is SessionState.FINISHED
    assert result.states == {"COMPLETED": 407, "ERROR": 26, "SKIPPED": 0}
    assert len(result.failures) == 4, "the measurement sets of the broken band"
    check_files(tmp_path / "run" / "files")


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("is_lost", [False, True], ids=["whole", "node lost"])
def test_the_sources_are_found_on_four_nodes(tmp_path: Path, *, is_lost: bool) -> None:
    """Measurement sets cross between nodes. What was on one that is killed is made again on the others."""
    needs_tools()
    patient = ("--suspect-after", 10, "--lost-after", 20)  # programs of the pipeline keep all processors busy
    with Cluster(tmp_path) as cluster:
        nodes = [cluster.node(name, "--workers", 1, *patient) for name in "abcd"]
        island = cluster.island(*nodes, more=patient)
        submitted = run(tmp_path, "submit", GRAPH, "--name", "radio", "--to", island.ready["url"])
        assert submitted.returncode == 0, submitted.stderr
        client = cluster.client(island, timeout=60.0)
        assert underway(client, "radio", 120)
        if is_lost:
            nodes[0].process.kill()
        detail = finished(client, "radio", 900.0)
        fetched = run(tmp_path, "fetch", "radio", "--to", island.ready["url"], "-o", tmp_path / "out")

    assert (detail.status, detail.members) == ("FINISHED", tuple("bcd" if is_lost else "abcd"))
    assert fetched.returncode == 0, fetched.stderr
    check_files(tmp_path / "out" / "files")


class Palette:
    """Runs components of radio.palette, as a graph has them, on files."""

    def __init__(self, directory: Path) -> None:
        document = json.loads((RADIO.parents[1] / "palettes" / "radio.palette").read_bytes())
        self.nodes = {node["name"]: node for node in document["nodeDataArray"]}
        self.directory = directory

    def __call__(self, name: str, inputs: dict[str, Path | list[Path]], output: str = "", **values: Any) -> Path:
        """Run a component, and return what it writes at a port."""
        node = self.nodes.pop(name)
        fields = [
            Argument(
                name=field["name"],
                value=values.get(field["name"], field["value"]),
                type=field["type"],
                encoding=field["encoding"],
                usage=field["usage"],
                parameter_type=field["parameterType"],
            )
            for field in node["fields"]
        ]
        ports = {
            field["name"]: field["type"] for field in node["fields"] if field["usage"] in ("OutputPort", "InputOutput")
        }
        directory, file = "dlg.data.drops.directory.DirectoryDROP", "dlg.data.drops.file.FileDROP"
        named = {"solutions": (Argument(name="filepath", value="solutions.h5"),)}
        wanted = [
            Wanted(port, port, directory if kind == "Object.ms" else file, named.get(port, ()))
            for port, kind in ports.items()
        ]
        given = [
            Given(port, path)
            for port, paths in inputs.items()
            for path in (paths if isinstance(paths, list) else [paths])
        ]
        done = try_app(fields[0].value, self.directory / name, inputs=given, outputs=wanted, fields=fields)
        assert done.result.failure is None, f"{name}: {done.result.failure}\n{done.log}"
        handle = done.handles[list(ports).index(output or next(iter(ports)))]
        assert handle is not None
        return Path(handle.location)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PyBDSF leaves its image open
def test_every_component_of_the_palette_runs(tmp_path: Path) -> None:
    """The programs and libraries do what the palette promises, on a simulated measurement set and its images."""
    needs_tools()
    from astropy.io import fits  # noqa: PLC0415 - an extra
    from casacore import tables  # noqa: PLC0415

    module, use = _pipeline(), Palette(tmp_path)
    part = {"band": 0, "time": 0, "is_broken": False, "sky": module.make_sky()}
    raw, model, strategy = (tmp_path / name for name in ("raw", "sky.skymodel", "strategy.lua"))
    module.write_settings(part, str(model), str(strategy))
    module.observe(part, 1.0, str(raw))

    def mean(ms: Path, column: str) -> float:
        with tables.table(str(ms), ack=False) as table:
            return float(abs(table.getcol(column)).mean())

    flagged = use("DP3 aoflagger", {"ms": raw}, strategy=str(strategy))
    gains = use("DP3 gaincal", {"ms": flagged, "model": model}, solint=20)
    use("DP3 ddecal", {"ms": flagged, "model": model}, solint=20, nchan=16, maxiter=3)
    corrected = use("DP3 applycal", {"ms": flagged, "solutions": gains}, correction="amplitude000")
    predicted = use("DP3 predict", {"ms": corrected, "model": model})
    averaged = use("DP3 average", {"ms": predicted}, timestep=4, freqstep=4)
    assert (mean(raw, "FLAG"), mean(flagged, "FLAG") > 0.05) == (0, True)
    assert mean(predicted, "DATA") == pytest.approx(mean(averaged, "DATA"), rel=0.1)

    cleared = use("TaQL update", {"ms": flagged}, query="update $1 set FLAG=False")
    assert (mean(cleared, "FLAG"), mean(flagged, "FLAG") > 0.05) == (0, True), "the input is as it was"
    half = use("Split measurement set", {"ms": raw}, condition="ANTENNA1 = 0")
    whole = use("Concatenate measurement sets", {"ms": [half, raw]})
    with tables.table(str(half), ack=False) as one, tables.table(str(whole), ack=False) as both:
        assert (one.nrows(), both.nrows()) == (300, 2700)

    options = {"size": 256, "scale": "8asec", "niter": 200, "auto_threshold": 5.0}
    use.nodes["again"] = use.nodes["WSClean"]
    image = use("WSClean", {"ms": predicted}, "image", **options)
    with_model = use("again", {"ms": predicted}, "ms", **options)
    with tables.table(str(with_model), ack=False) as table, tables.table(str(predicted), ack=False) as before:
        assert ("MODEL_DATA" in table.colnames(), "MODEL_DATA" in before.colnames()) == (True, False)
    found = use("PyBDSF", {"image": image}, thresh_pix=20.0, thresh_isl=10.0).read_text(encoding="utf-8")
    assert "Total_flux" in found
    gc.collect()  # PyBDSF leaves its image open, which would be a warning in a later test
    twice = use("FITS arithmetic", {"a": image, "b": image})
    assert fits.getdata(twice).max() == pytest.approx(2 * fits.getdata(image).max())
    moment = use("FITS moments", {"cube": image})
    assert fits.getdata(moment).shape == (1, 1, 256, 256)
    shifted = tmp_path / "shifted.fits"
    with fits.open(image) as opened:
        opened[0].header["CRPIX1"] += 100
        opened[0].writeto(shifted)
    assert fits.getdata(use("FITS mosaic", {"images": [image, shifted]})).shape == (1, 1, 256, 356)
    assert use.nodes == {}, "components that were not tried"
