from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropflow.errors import BadFileError, BadGraphError, StorageError
from dropflow.graph import codec
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import digest, dump
from tests.graph.shapes import scatter

SMALL = b"".join(dump(scatter(2)))


@pytest.mark.parametrize("mmap", [False, True])
def test_a_file_holds_the_whole_graph(tmp_path: Path, *, mmap: bool) -> None:
    """Names, places and text ids are read back, whether columns are read or mapped."""
    part = np.array([0, 1, 1, 0], dtype=np.int32)
    graph = replace(scatter(1), oids=("a", "b", "x y", "c"), part=part, places=("n1", "n2"), meta={"islands": '["i"]'})
    codec.save(graph, tmp_path / "graph.dfg")

    found = codec.load(tmp_path / "graph.dfg", mmap=mmap)
    assert digest(found) == digest(graph)
    assert (found.name, found.places, found.oids, found.meta) == (graph.name, graph.places, graph.oids, graph.meta)


def test_a_file_is_the_bytes_of_a_dump(tmp_path: Path) -> None:
    """The bytes of a file are the buffers of `dump`, one after the other."""
    codec.save(scatter(2), tmp_path / "graph.dfg")

    assert (tmp_path / "graph.dfg").read_bytes() == SMALL


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: path.parent, "No such file"),
        (lambda path: path.write_bytes(b""), "empty|not a .dfg"),
        (lambda path: path.write_text("[]"), "not a .dfg file"),
        (lambda path: path.write_bytes(SMALL[:-1]), "cut off"),
    ],
    ids=["directory", "missing", "empty", "foreign", "cut off"],
)
def test_files_that_are_not_graphs_are_refused(
    tmp_path: Path, *, mmap: bool, make: Callable[[Path], object], text: str
) -> None:
    """A directory, a missing, empty, foreign or truncated file raises one error with its path."""
    path = tmp_path / "graph.dfg"
    make(path)
    with pytest.raises(BadFileError, match=text) as caught:
        codec.load(path, mmap=mmap)

    assert caught.value.where == str(path)


def test_saving_replaces_a_file_as_a_whole(tmp_path: Path) -> None:
    """If a graph cannot be written, the old file stays and no partial file is left."""
    path = tmp_path / "graph.dfg"
    codec.save(scatter(2), path)
    with pytest.raises(BadGraphError, match="half of a surrogate pair"):
        codec.save(GraphBuilder().data("\ud800").build(), path)
    with pytest.raises(StorageError, match="cannot be written"):
        codec.save(scatter(3), tmp_path / "missing" / "graph.dfg")

    assert codec.load(path).drops == 7
    assert [found.name for found in tmp_path.iterdir()] == ["graph.dfg"]
    codec.save(scatter(3), path)
    assert codec.load(path).drops == 10
