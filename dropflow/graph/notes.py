"""Notes of graphs, which graph files and sessions keep: how a graph was planned and submitted, and what it is from."""

import platform
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from dropflow.graph.physical import PhysicalGraph, is_fused, without_fusion
from dropflow.session_options import SubmitOptions, chosen_of
from dropflow.version import __version__

PLANNING = "planning"
"""Name of the note in `PhysicalGraph.meta`."""
PROCESSORS = "processors"
"""Name of the note in `PhysicalGraph.meta`."""
SOFTWARE = "software"
"""Name of the note in `PhysicalGraph.meta`."""
REPOSITORY = "repository"
"""Name of the note in `PhysicalGraph.meta`."""
LOGICAL = "logical"
"""Name of the note in `PhysicalGraph.meta`."""
_LONGEST_BYTES = 16 << 20
"""Bytes of a logical graph that is kept in a note."""
_LONGEST_PACKED_BYTES = 4 << 20
"""Bytes of a logical graph that is kept in a note, once it is compressed."""
DRAWN = "drawn"
"""Name of the note in `PhysicalGraph.meta`."""
FARTHEST = 1e6
"""Coordinates beyond this are not used: they would make all nodes invisibly small."""
Position = tuple[float, float]
SUBMISSION = "submission"
"""Name of the note in `PhysicalGraph.meta`."""

# How a graph was planned, so that a clone is planned in the same way.


def note_planning(graph: PhysicalGraph, options: Mapping[str, Any]) -> PhysicalGraph:
    """Return the graph with a note of the options of its plan, by their names."""
    return replace(graph, meta={**graph.meta, PLANNING: msgspec.json.encode(dict(options)).decode()})


def planning_of(graph: PhysicalGraph) -> dict[str, Any]:
    """Return the options of the plan of a graph, by their names; empty if they are not known."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(PLANNING, ""), type=dict[str, Any])
    return {}


def note_processors(graph: PhysicalGraph, shares: Sequence[int]) -> PhysicalGraph:
    """Return the graph with a note of how many processors each part uses at most at a time; none for no limit."""
    rest = {name: value for name, value in graph.meta.items() if name != PROCESSORS}
    return replace(graph, meta={**rest, PROCESSORS: msgspec.json.encode(shares).decode()} if shares else rest)


def processors_of(graph: PhysicalGraph) -> list[int]:
    """Return how many processors each part uses at most at a time; empty if the plan has no limit."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(PROCESSORS, ""), type=list[int])
    return []


# With which versions of programs a graph was run: a note that graph files and sessions keep.


def note_software(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph with a note of the versions of dropflow and Python in this process."""
    versions = {"dropflow": __version__, "Python": platform.python_version()}
    return replace(graph, meta={**graph.meta, SOFTWARE: msgspec.json.encode(versions).decode()})


def software_of(graph: PhysicalGraph) -> dict[str, str]:
    """Return the versions of programs by their names; empty if they were not recorded."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(SOFTWARE, ""), type=dict[str, str])
    return {}


# The repository that a graph was read from: a note, which graph files and sessions keep.


class RepositoryNote(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a graph: an address with its branch, the commit, and the digest of the file (BLAKE2b)."""

    address: str
    commit: str
    digest: str

    def __str__(self) -> str:
        return f"the graph is {self.address} at commit {self.commit}, digest {self.digest}"


def repository_of(graph: PhysicalGraph) -> RepositoryNote | None:
    """Return the repository that a graph was read from; None if it was another file."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(REPOSITORY, ""), type=RepositoryNote)
    return None


# The logical graph that a physical graph was made from: a note, which graph files and sessions keep.
#
# With it a session can be run again with other values (``dropflow submit --like``). It has the file as it was read, and
# the configuration and the settings that were applied to it.


class LogicalNote(msgspec.Struct, frozen=True, kw_only=True):
    """A logical graph and its values.

    Attributes
    ----------
    document : bytes
        The file.
    configuration : str
        Id or name of the configuration that was used; empty for the active one.
    settings : tuple of str
        ``NODE.PARAM=VALUE``, in the order in which they were applied.
    """

    document: bytes
    configuration: str = ""
    settings: tuple[str, ...] = ()


class _Packed(msgspec.Struct):
    zlib: bytes
    configuration: str = ""
    settings: tuple[str, ...] = ()


def note_logical(document: bytes, *, configuration: str | None, settings: Mapping[str, Any] | Sequence[str]) -> str:
    """Return the note of a logical graph; empty if the file is larger than 16 MiB, or than 4 MiB compressed."""
    packed = zlib.compress(document, 6) if len(document) <= _LONGEST_BYTES else b""
    if not packed or len(packed) > _LONGEST_PACKED_BYTES:
        return ""
    if isinstance(settings, Mapping):
        settings = [f"{name}={_text(value)}" for name, value in settings.items()]
    note = _Packed(packed, configuration or "", tuple(settings))
    return msgspec.json.encode(note).decode()


def logical_of(graph: PhysicalGraph) -> LogicalNote | None:
    """Return the logical graph that a graph was made from; None if it is not known."""
    with suppress(msgspec.MsgspecError, zlib.error):
        note = msgspec.json.decode(graph.meta.get(LOGICAL, ""), type=_Packed)
        unpack = zlib.decompressobj()
        document = unpack.decompress(note.zlib, _LONGEST_BYTES)
        if unpack.eof:
            return LogicalNote(document=document, configuration=note.configuration, settings=note.settings)
    return None


def with_more_settings(known: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Return settings with further ones, which replace those of the same parameters."""
    replaced = {_address(setting) for setting in more}
    return (*(setting for setting in known if _address(setting) not in replaced), *more)


def _address(setting: str) -> str:
    return setting.partition("=")[0].strip().removeprefix("global.")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# Where an editor drew the logical nodes: a note of a physical graph, which graph files and sessions keep.
#
# The note is JSON: ``[x, y]`` by the key of each template, in whole units of the editor.


def position_note(positions: Mapping[str, Position]) -> str:
    """Return the note of positions by the key of their logical node."""
    return msgspec.json.encode({key: (round(x), round(y)) for key, (x, y) in positions.items()}).decode()


def positions_of(graph: PhysicalGraph) -> dict[int, Position]:
    """Return where templates were drawn, by row. A note that cannot be read is like none: it is only about looks."""
    positions: dict[str, Position] = {}
    with suppress(msgspec.MsgspecError):
        positions = msgspec.json.decode(graph.meta.get(DRAWN, "{}"), type=dict[str, Position])
    rows = {template.key: row for row, template in enumerate(graph.templates)}
    return {
        rows[key]: position
        for key, position in positions.items()
        if key in rows and all(abs(number) <= FARTHEST for number in position)
    }


# The options of its submission: a note, with which a session can be cloned.


def note_options(graph: PhysicalGraph, options: SubmitOptions) -> PhysicalGraph:
    """Return the graph with the note of these options, and without fusion if they say so."""
    fused = graph if options.fuse else without_fusion(graph)
    noted = SubmitOptions(**chosen_of(options) | {"fuse": is_fused(fused)})
    return replace(fused, meta={**fused.meta, SUBMISSION: msgspec.json.encode(noted).decode()})


def submission_options(graph: PhysicalGraph) -> SubmitOptions:
    """Return the options that a session with this graph was submitted with; the defaults if they are not known."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(SUBMISSION, ""), type=SubmitOptions)
    return SubmitOptions(fuse=is_fused(graph))


def without_past_walltime(options: SubmitOptions, now: float) -> SubmitOptions:
    """Return the options for another session: without a walltime that has passed."""
    return msgspec.structs.replace(options, until=0.0) if options.until <= now else options
