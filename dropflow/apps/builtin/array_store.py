"""Reading and writing of the zarr stores of arrays, chunk by chunk. The translator adds these applications."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from dropflow.apps.api import App, Context
from dropflow.apps.array_chunks import ArrayPort, ChunkGrid, chunk_of
from dropflow.data.file_paths import final_path
from dropflow.data.zarr_store import absent_chunks, create_array, read_region, write_chunk
from dropflow.engine.component import Component, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["ArrayCloseStore", "ArrayOpenStore", "ArrayReadChunk", "ArrayWriteChunk"]

_OPENED = Port(name="opened", usage="InputPort", encoding="json", description="The path of the store.")


class StoreApp(App):
    """An application on the store of an array."""

    @cached_property
    def grid(self) -> ChunkGrid:
        """What the translator has told about the array."""
        return ChunkGrid(self.template)

    @cached_property
    def array(self) -> ArrayPort:
        """The array."""
        return ArrayPort(self.grid.record["array"])

    @property
    def compressor(self) -> Mapping[str, Any] | None:
        """Of the chunks, as the metadata of zarr have it."""
        found: Mapping[str, Any] | None = self.grid.record.get("compressor")
        return found

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a whole chunk; a store has regular chunks only."""
        return tuple(size if isinstance(size, int) else size[0] for size in self.array.tiling.chunks)


class ArrayOpenStore(StoreApp):
    """Writes the metadata of a store."""

    component = Component(
        name="ArrayOpenStore",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dropflow.apps.ArrayOpenStore",
        description="Writes the metadata of the zarr store of an array, before its chunks. The translator adds it.",
        ports=(Port(name="opened", usage="OutputPort", encoding="json", description="The path of the store."),),
        is_internal=True,
    )

    def run(self, context: Context) -> None:
        """Write the metadata, and give the path to those that write chunks."""
        path = Path(
            final_path(
                str(self.grid.record["store"]),
                base=context.directory,
                oid=_name_of_store(context, self.template.key, str(self.grid.record["key"])),
                now=0.0,
            )
        )
        is_ours = path.is_relative_to(context.directory)  # no other session writes there
        session = "" if is_ours else context.session
        shape, dtype, compressor = self.array.tiling.shape, self.array.dtype, self.compressor
        create_array(path, shape, self.chunks, dtype, session, compressor=compressor)
        for output in context.outputs:
            output.put({"path": str(path)}, "json")


class ArrayWriteChunk(StoreApp):
    """Writes a chunk."""

    component = Component(
        name="ArrayWriteChunk",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dropflow.apps.ArrayWriteChunk",
        description="Writes a chunk of an array into its zarr store. The translator adds it.",
        ports=(
            _OPENED,
            Port(name="chunk", usage="InputPort", encoding="npy", description="The chunk."),
            Port(name="written", usage="OutputPort", encoding="raw", description="Completes when the chunk is stored."),
        ),
        is_internal=True,
    )

    def run(self, context: Context) -> None:
        """Write the chunk of this instance."""
        place = self.grid.place(context)
        shape = self.array.tiling.chunk_shape(place)
        values = chunk_of(_at(context, "chunk").value("npy"), shape, self.array.dtype, "the chunk")
        write_chunk(_path(context), place, values, self.chunks, self.array.dtype, compressor=self.compressor)


class ArrayCloseStore(StoreApp):
    """Completes the data drop of a store."""

    component = Component(
        name="ArrayCloseStore",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dropflow.apps.ArrayCloseStore",
        description="Completes the zarr store of an array when all its chunks are written. The translator adds it.",
        ports=(
            _OPENED,
            Port(name="written", usage="InputPort", encoding="raw", description="The chunks that are stored."),
            Port(name="store", usage="OutputPort", encoding="path", description="The store."),
        ),
        is_internal=True,
    )

    def run(self, context: Context) -> None:
        """Check that the store has all chunks.

        Raises
        ------
        AppError
            Chunks are missing: they were written on another machine, or removed.
        """
        path = _path(context)
        absent = absent_chunks(path, self.array.tiling.counts)
        if absent:
            raise AppError(
                f"the store {path} does not have {len(absent):,} of its {self.array.tiling.number:,} chunks, "
                f"{absent[0]} for one",
                hint="a store with an absolute path must be on a file system that all nodes share; one with a relative "
                "path is in the session, on one node",
            )


class ArrayReadChunk(StoreApp):
    """Reads a chunk."""

    component = Component(
        name="ArrayReadChunk",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dropflow.apps.ArrayReadChunk",
        description="Reads a chunk of an array from its zarr store. The translator adds it.",
        ports=(
            Port(
                name="store", usage="InputPort", encoding="path", description="The store, if an application writes it."
            ),
            Port(name="chunk", usage="OutputPort", encoding="npy", description="The chunk."),
        ),
        is_internal=True,
    )

    def run(self, context: Context) -> None:
        """Read the chunk of this instance."""
        written = context.input("store")
        if written is None:
            value = str(self.grid.record["store"])
            path = Path(final_path(value, base=context.directory, oid=context.oid, now=0.0))
        else:
            path = written.path
        region = self.array.slices(self.grid.place(context))
        shape = [one.stop - one.start for one in region]
        chunk = chunk_of(read_region(path, region), shape, self.array.dtype, f"the array at {path}")
        for output in context.outputs:
            output.put(chunk, "npy")


def _at(context: Context, port: str) -> Any:
    found = context.input(port)
    if found is None:
        raise AppError(f"there is no input at the port {port!r}", hint="translate the logical graph again")
    return found


def _path(context: Context) -> Path:
    return Path(json.loads(_at(context, "opened").read())["path"])


def _name_of_store(context: Context, own: str, store: str) -> str:
    """Return the id of the data drop of the store: that of this drop, with another key of its template."""
    head, found, tail = context.oid.rpartition(f"_{own}_")
    return f"{head}_{store}_{tail}" if found else context.oid
