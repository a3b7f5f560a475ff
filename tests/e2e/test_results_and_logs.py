"""Results as one file, and the log of a session, from two node managers through an island and a master."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dropflow.api.client import Client
from dropflow.api.contents import DataQuery, PartOfContent
from dropflow.api.records import SubmitQuery
from dropflow.errors import RangeError
from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template
from dropflow.preview.look import picture, preview
from dropflow.preview.source import BytesSource
from tests.processes import Running, run
from tests.streaming_graphs import bash

pytestmark = pytest.mark.slow

_CODE = """def printing():
    import ctypes, logging, os, sys
    import numpy as np
    print("from Python")
    print("to standard error", file=sys.stderr)
    logging.getLogger("x").warning("careful")
    os.system("echo from a program")
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    return np.arange(12.0).reshape(3, 4)
"""
_PRINTED = ("from Python", "to standard error", "x: careful", "from a program", "from C")
_COPIES = 4


def _graph() -> PhysicalGraph:
    """Python functions that print in all ways, and their results, on two nodes by turns."""
    axes = (Axis("many", "many", "scatter", _COPIES),)
    each = np.arange(_COPIES, dtype=np.int32)
    arguments = tuple(
        Argument(name=name, value=value, type="String")
        for name, value in (("func_code", _CODE), ("func_name", "printing"), ("output_parser", "npy"))
    )
    return from_columns(
        name="printing",
        prefix="g",
        templates=(
            Template(
                key="p",
                name="print",
                kind=Kind.APP,
                component="dlg.apps.pyfunc.PyFuncApp",
                axes=axes,
                arguments=arguments,
            ),
            Template(key="r", name="result", kind=Kind.DATA, component="dlg.data.drops.memory.InMemoryDROP", axes=axes),
        ),
        links=(Link(source=0, target=1),),
        template=np.repeat(np.arange(2, dtype=np.int32), _COPIES),
        instance=np.tile(each, 2),
        source=each,
        target=_COPIES + each,
        link=np.zeros(_COPIES, dtype=np.int32),
        part=np.tile(each % 2, 2),
    )


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two nodes with an island, a master and a translator."""
    with Running(tmp_path_factory.mktemp("up"), "up", "--nodes", 2, "--port", 0) as running:
        yield running


def test_what_drops_print_and_make_comes_from_all_nodes(up: Running, tmp_path: Path) -> None:
    """Following the log ends with the session, and has each line once, of Python, of programs and of compiled code.

    The archive has the files of a fetch. Previews, pictures and parts through the managers are those of the contents.
    """
    with Client(up.ready["master"], token=up.ready["token"]) as master:
        master.submit(_graph(), SubmitQuery(session="printing", anew=True))
    followed = run(up.home, "log", "printing", "--follow", "--output", "json")
    lines = [json.loads(line) for line in followed.stdout.splitlines()]

    assert followed.returncode == 0, followed.stderr
    assert sorted((line["drop"], line["text"]) for line in lines) == sorted(
        (f"g_p_0-{number}", text) for number in range(_COPIES) for text in _PRINTED
    )
    assert len({line["node"] for line in lines}) == 2
    assert {line["level"] for line in lines if "careful" in line["text"]} == {"WARNING"}

    with (
        Client(up.ready["master"], token=up.ready["token"]) as master,
        Client(up.ready["island"], token=up.ready["token"]) as island,
    ):
        for manager in (master, island):
            for number in range(2):  # one on each node
                oid = f"g_r_0-{number}"
                whole = manager.data("printing", oid)
                data = b"".join(whole.chunks)
                content = BytesSource(data, oid)
                rest = manager.data("printing", oid, DataQuery(range="bytes=100-", if_range=whole.etag))
                assert b"".join(rest.chunks) == data[100:]
                assert rest.part == PartOfContent(100, len(data) - 1, len(data))
                with pytest.raises(RangeError, match=f"the content has {len(data)} bytes"):
                    manager.data("printing", oid, DataQuery(range="bytes=9999-"))
                assert manager.preview("printing", oid) == preview(content)
                assert preview(content).width == 4
                assert b"".join(manager.picture("printing", oid).chunks) == picture(content)

    packed = run(up.home, "fetch", "printing", "-o", tmp_path / "all.tar")
    fetched = run(up.home, "fetch", "printing", "-o", tmp_path / "all")
    assert (packed.returncode, fetched.returncode) == (0, 0), packed.stderr + fetched.stderr
    with tarfile.open(tmp_path / "all.tar") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")

    def files(place: Path) -> dict[str, bytes]:
        return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}

    assert files(tmp_path / "unpacked") == files(tmp_path / "all")
    assert len(files(tmp_path / "all")) == _COPIES


def test_a_drop_of_a_session_is_replayed_with_inputs_from_its_node(up: Running, tmp_path: Path) -> None:
    """A file is fetched, contents that were released are made again here, and the failure is that of the session."""
    code = "def check(values):\n    raise ValueError(f'{len(values)} bytes')\n"
    fields = {"func_code": code, "func_name": "check", "input_parser": "raw"}
    for data in ("file.FileDROP", "memory.InMemoryDROP"):
        drawing = GraphBuilder("checks")
        drawing.app("MAKE", **bash("StreamingOutputBashApp", "echo seven!!"))  # type: ignore[arg-type]
        drawing.data("values", component=f"dlg.data.drops.{data}", part=0)
        arguments = tuple(Argument(name=name, value=value, type="String") for name, value in fields.items())
        drawing.app("CHECK", component="dlg.apps.pyfunc.PyFuncApp", part=1, arguments=arguments)
        drawing.data("end", part=1)
        drawing.connect("MAKE", "values").connect("values", "CHECK").connect("CHECK", "end")
        name = data.partition(".")[0]
        with Client(up.ready["master"], token=up.ready["token"]) as master:
            master.submit(drawing.build(), SubmitQuery(session=name, anew=True))
        run(up.home, "watch", name)
        answer = run(up.home, "replay", name, "CHECK", "-o", tmp_path / name)

        assert answer.returncode == 1, answer.stderr
        assert "ValueError: 8 bytes" in answer.stdout
        assert ("1 application ran before it" in answer.stdout) == (name == "memory")
        assert (tmp_path / name / "inputs").exists() == (name == "file")
