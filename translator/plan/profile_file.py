"""Profiles on disk: what runs have measured, by logical node and instance, as arrays (a ``.npz`` file of NumPy)."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from dropflow.errors import BadFileError
from dropflow.graph.templates import Kind
from translator.plan.measured import Floats, MeasuredNode

_VERSION = 1
_MAGIC = b"PK"
_USAGE = ("processor", "memory")


class _NodeHeader(msgspec.Struct, frozen=True):
    """One logical node, and how many of its instances were measured."""

    key: str
    kind: int
    shape: tuple[int, ...]
    measured: int


class _Profile(msgspec.Struct, frozen=True):
    version: int
    nodes: tuple[_NodeHeader, ...]


def write_profile(nodes: Sequence[MeasuredNode], stream: BinaryIO) -> None:
    """Write a profile."""
    headers = tuple(_NodeHeader(node.key, int(node.kind), node.shape, len(node.instance)) for node in nodes)
    text = msgspec.json.encode(_Profile(_VERSION, headers))
    empty: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = [np.zeros(0)]
    np.savez_compressed(
        stream,
        header=np.frombuffer(text, dtype=np.uint8),
        instance=np.concatenate([np.zeros(0, dtype=np.int64), *(node.instance for node in nodes)]),
        mean=np.concatenate(empty + [node.mean for node in nodes]),
        count=np.concatenate(empty + [node.count for node in nodes]),
        processor=np.concatenate(empty + [node.processor for node in nodes]),
        memory=np.concatenate(empty + [node.memory for node in nodes]),
    )


def read_profile(path: Path) -> tuple[MeasuredNode, ...]:
    """Return the measurements in a profile.

    Raises
    ------
    BadFileError
        It cannot be read, or is not a profile.
    """
    hint = "make one with 'dropflow times RUN -o FILE.npz'"
    try:
        with path.open("rb") as stream:
            if stream.read(len(_MAGIC)) != _MAGIC:
                raise BadFileError("the file is not a profile", where=str(path), hint=hint)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as found:
                profile = msgspec.json.decode(found["header"].tobytes(), type=_Profile)
                instance = found["instance"].astype(np.int64)
                columns = {name: found[name].astype(np.float64) for name in ("mean", "count")}
                for name in _USAGE:  # which the first profiles did not have
                    columns[name] = found[name].astype(np.float64) if name in found else np.full(len(instance), np.nan)
        return tuple(_nodes(profile, instance, columns))
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (ValueError, KeyError, zipfile.BadZipFile, EOFError, msgspec.MsgspecError) as error:
        raise BadFileError(f"the profile cannot be read: {error}", where=str(path), hint=hint) from error


def _nodes(
    profile: _Profile, instance: np.ndarray[tuple[int, ...], np.dtype[np.int64]], columns: Mapping[str, Floats]
) -> list[MeasuredNode]:
    ends = np.cumsum([0, *(node.measured for node in profile.nodes)]).tolist()
    lengths = {len(instance), *map(len, columns.values())}
    if profile.version != _VERSION or lengths != {ends[-1]} or any(node.measured < 1 for node in profile.nodes):
        raise ValueError("its parts do not fit together")
    for name, column in columns.items():
        known = column[~np.isnan(column)] if name in _USAGE else column  # NaN: not measured
        if not (np.isfinite(known).all() and (known >= 0).all() and (name != "count" or known.all())):
            raise ValueError("a number in it is not finite, or negative")
    found = []
    for node, first, last in zip(profile.nodes, ends[:-1], ends[1:], strict=True):
        here = slice(first, last)
        if instance[here].min() < 0 or instance[here].max() >= np.prod(node.shape, dtype=np.int64):
            raise ValueError(f"an instance of node {node.key!r} is out of range")
        own = {name: column[here] for name, column in columns.items()}
        found.append(MeasuredNode(node.key, Kind(node.kind), node.shape, instance[here], **own))
    return found
