"""Computations of dask as graph files, and values as files."""

from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import dropflow.dask
from dropflow.dask.lost_chunks import described
from dropflow.dask.persist import ChunkPlace, PersistedChunk, PersistedSession
from dropflow.dask.translate import layer_chunks
from dropflow.engine.session import Session
from dropflow.errors import BadFileError, BadParameterError
from dropflow.graph.codec import load
from dropflow.graph.text_ids import row_of
from dropflow.sessions import local_run
from dropflow.states import SessionState


def test_a_computation_runs_from_its_file(tmp_path: Path) -> None:
    """The file has a part for each node, and the ids of the values in the places of the collections."""
    x = da.arange(2000, chunks=500) + 1

    total, (same,) = dropflow.dask.save_graph(tmp_path / "x.dfg", x.sum(), [x], nodes=2)

    graph = load(tmp_path / "x.dfg")
    assert graph.parts == 2
    sessions: list[Session] = []
    result = local_run.run(graph, directory=tmp_path / "run", runner="inline", on_session=sessions.append)
    assert result.status is SessionState.FINISHED
    values = []
    for oid in (total, same):
        row = row_of(graph, oid)
        assert row is not None
        handle = sessions[0].content(row)
        assert handle is not None
        values.append(dropflow.dask.load_value(handle.location))
    assert values[0] == 2_001_000
    assert np.array_equal(values[1], np.arange(1, 2001))


def test_a_file_without_a_value_is_refused(tmp_path: Path) -> None:
    """The error names the file; a graph for no node is refused, too."""
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadFileError, match=r"the file has no value that can be loaded") as caught:
        dropflow.dask.load_value(tmp_path / "text")
    assert caught.value.where == str(tmp_path / "text")
    with pytest.raises(BadParameterError, match=r"the number of nodes is 0"):
        dropflow.dask.save_graph(tmp_path / "x.dfg", da.ones(3), nodes=0)


class _Nowhere:
    """A source of chunks that are not read."""

    address = "nowhere"

    def read(self, session: str, places: object) -> dict[int, object]:
        raise AssertionError(session, places)


def test_chunks_of_arrays_have_shape_and_type() -> None:
    """They are those of the layer; other keys, and chunks of unknown size, have none."""
    x = da.ones((7, 4), chunks=(5, 4))
    places = {0: ChunkPlace("d_0", "", "results/d_0", 8, 0)}
    session = PersistedSession(_Nowhere(), "s", places)
    keys = [(x.name, 0, 0), (x.name, 1, 0), (x.name, 1), "y", ("z", 0)]
    unknown = ((float("nan"), float("nan")),)

    found = described(
        {key: PersistedChunk(key, session, 0) for key in keys},
        {**layer_chunks(x.dask), "z": (unknown, np.dtype("f8"))},  # type: ignore[dict-item]
    )

    assert [found[key].shape for key in keys] == [(5, 4), (2, 4), None, None, None]
    assert found[keys[0]].dtype == np.dtype("f8")
