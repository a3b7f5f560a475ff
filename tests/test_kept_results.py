"""FINISHED means that every leaf is kept: runs whose disk is full, or whose directory is removed."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.engine.api import Handle
from dropflow.engine.journal import replay
from dropflow.engine.statistics import SessionResult
from dropflow.errors import StorageError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import load
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.drawn_graphs import data, draw, function

FILE = "dlg.data.drops.file.FileDROP"
MEMORY = "dlg.data.drops.memory.InMemoryDROP"


def _writer(code: str, component: str = MEMORY, **fields: str) -> PhysicalGraph:
    """Return a function and the data drop that it writes."""
    drawing = GraphBuilder("keeping")
    drawing.app(
        "f",
        component="dlg.apps.pyfunc.PyFuncApp",
        category="PyFuncApp",
        arguments=(Argument(name="func_name", value="f"), Argument(name="func_code", value=code)),
    )
    drawing.data("leaf", component=component, arguments=tuple(Argument(name=k, value=v) for k, v in fields.items()))
    return drawing.connect("f", "leaf", source_port="out").build()


def _run(graph: PhysicalGraph, directory: Path, runner: str = "inline") -> SessionResult:
    return local_run.run(graph, directory=directory, runner=runner, workers=1)


def test_a_run_that_cannot_keep_a_leaf_fails(tmp_path: Path) -> None:
    """If a leaf cannot be kept, the command ends with 1 and names the drop and the reason.

    No file may be larger than 40,000 bytes here, and the leaf has 60,000, which fit into a message.
    """
    graph = draw(tmp_path / "g.graph", [function("F", "def F():\n    return 'x' * 60000"), data("leaf")], "F > leaf")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "dropflow",
            "run",
            str(graph),
            "--runner",
            "inline",
            "--keep",
            "run",
            "--output",
            "json",
        ],
        cwd=tmp_path,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
        check=False,
    )
    answer, journal = json.loads(done.stdout), tmp_path / "run" / "journal.dfj"

    assert (done.returncode, answer["ok"], answer["status"]) == (1, False, "FAILED")
    assert "cannot write the result" in answer["failures"][0]["text"]
    assert answer["failures"][0]["name"] == "F"
    assert list((tmp_path / "run" / "results").iterdir()) == []
    assert "cannot write the result" in replay(load(tmp_path / "run" / "graph.dfg"), journal).failures[0].text


def test_a_full_disk_leaves_room_for_the_reason(small_disk: Path) -> None:
    """Partial content is removed, so that journal, log and summary have room for the reason of the failure."""
    code = "def f(x=None):\n    print('before')\n    return bytes(5_000_000)"
    graph = _writer(code)
    result = _run(graph, small_disk / "run", "processes")
    (failure,) = result.failures

    assert result.status is SessionState.FAILED
    assert "No space left on device" in failure.text
    assert json.loads((small_disk / "run" / "summary.json").read_text())["failures"][0]["text"] == failure.text
    assert replay(graph, small_disk / "run" / "journal.dfj").core.status is SessionState.FAILED
    assert "No space left on device" in Path(failure.log).read_text()
    assert result.notes == ()
    assert not (small_disk / "run" / "tmp").exists()


def test_a_result_that_fills_the_disk_leaves_no_file(small_disk: Path) -> None:
    """If a content in shared memory does not fit on the disk, its producer fails and no partial file is left."""
    repository = LocalRepository(small_disk / "run", "s", SystemClock())
    graph = _writer("def f(): pass")
    part = repository.workspace.shared / "part"
    part.write_bytes(bytes(5_000_000))
    handle = Handle(kind="shm", location=str(part), size=5_000_000)
    with pytest.raises(StorageError, match=r"cannot write the result .* No space left"):
        repository.keep_result(1, "leaf", graph.templates[1], handle)

    assert list(repository.workspace.results.iterdir()) == []
    assert [path.name for path in repository.workspace.tmp.iterdir()] == ["shm"]
    assert list(repository.workspace.shared.iterdir()) == []
    repository.close()


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("component", [MEMORY, FILE])
def test_a_run_whose_directory_is_removed_fails(tmp_path: Path, component: str, *, comes_back: bool) -> None:
    """A session whose directory is removed or replaced while it runs is not FINISHED."""
    directory = tmp_path / "run"
    code = f"def f():\n    import shutil\n    shutil.rmtree({str(directory)!r})\n"
    if comes_back:
        code += "    import os\n"
        code += "".join(f"    os.makedirs({str(directory / name)!r})\n" for name in ("tmp", "results"))
    result = _run(_writer(code + "    return 'text'", component), directory)

    assert result.status is SessionState.FAILED
    assert result.failures


def test_a_run_whose_results_are_replaced_after_the_last_drop_fails(tmp_path: Path) -> None:
    """The session fails and names the directory, even if it was replaced after the last write."""
    directory = tmp_path / "run"
    drawing = GraphBuilder("keeping").data("leaf", component=MEMORY, arguments=(Argument(name="pydata", value="1"),))
    away = f"def f(x):\n    import shutil\n    shutil.rmtree({str(directory / 'results')!r})"
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=away))
    drawing.app("f", component="dlg.apps.pyfunc.PyFuncApp", arguments=fields)
    result = _run(drawing.data("in").connect("in", "f", target_port="x").build(), directory)

    assert result.status is SessionState.FAILED
    assert [failure.text for failure in result.failures] == [
        f"the directory {directory}/results was removed or replaced while the session ran: what was kept in it is gone"
    ]


def test_a_summary_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    """If the summary cannot be written, the run is FINISHED and a note says so: the results are kept."""
    directory = tmp_path / "run"
    in_the_way = f"def f():\n    import os\n    os.mkdir({str(directory / 'summary.json')!r})\n    return 'text'"
    result = _run(_writer(in_the_way), directory)

    assert result.status is SessionState.FINISHED
    assert ["summary.json" in note for note in result.notes] == [True]
    assert len(list((directory / "results").iterdir())) == 1


def test_committed_outputs_of_a_failed_attempt_are_removed(tmp_path: Path) -> None:
    """If one output of an attempt cannot be stored, the outputs that it had committed are removed."""
    drawing = GraphBuilder("keeping")
    code = "def f():\n    return 'text'"
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    drawing.app("f", component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=fields)
    drawing.data("good", component=FILE, arguments=(Argument(name="filepath", value="good.txt"),))
    drawing.data("bad", component=FILE, arguments=(Argument(name="filepath", value="good.txt/bad.txt"),))
    drawing.connect("f", "good", source_port="out").connect("f", "bad", source_port="out")
    result = _run(drawing.build(), tmp_path / "run")

    assert result.status is SessionState.FAILED
    assert list((tmp_path / "run" / "files").iterdir()) == []
