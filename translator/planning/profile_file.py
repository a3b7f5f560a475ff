"""Profiles on disk: what runs have measured, by logical node and instance, as arrays (a ``.npz`` file of NumPy)."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from dropflow.errors import BadFileError
from dropflow.graph.templates import Kind
from translator.planning.measured import MeasuredNode

__all__ = ["read_profile", "write_profile"]

_VERSION = 1
_MAGIC = b"PK"


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
    )


def read_profile(path: Path) -> tuple[MeasuredNode, ...]:
    """Return the measurements in a profile.

    Raises
    ------
    BadFileError
        It cannot be read, or is not a profile.
    """
    hint = "make one with 'dropflow profile RUN -o FILE'"
    try:
        with path.open("rb") as stream:
            if stream.read(len(_MAGIC)) != _MAGIC:
                raise BadFileError("the file is not a profile", where=str(path), hint=hint)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as found:
                profile = msgspec.json.decode(found["header"].tobytes(), type=_Profile)
                instance = found["instance"].astype(np.int64)
                mean, count = found["mean"].astype(np.float64), found["count"].astype(np.float64)
        return tuple(_nodes(profile, instance, mean, count))
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (ValueError, KeyError, zipfile.BadZipFile, EOFError, msgspec.MsgspecError) as error:
        raise BadFileError(f"the profile cannot be read: {error}", where=str(path), hint=hint) from error


def _nodes(
    profile: _Profile,
    instance: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    mean: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    count: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> list[MeasuredNode]:
    ends = np.cumsum([0, *(node.measured for node in profile.nodes)]).tolist()
    lengths = {len(instance), len(mean), len(count)}
    if profile.version != _VERSION or lengths != {ends[-1]} or any(node.measured < 1 for node in profile.nodes):
        raise ValueError("its parts do not fit together")
    if not (np.isfinite(mean).all() and (mean >= 0).all() and np.isfinite(count).all() and (count > 0).all()):
        raise ValueError("a number in it is not finite, or negative")
    found = []
    for node, first, last in zip(profile.nodes, ends[:-1], ends[1:], strict=True):
        here = slice(first, last)
        if instance[here].min() < 0 or instance[here].max() >= np.prod(node.shape, dtype=np.int64):
            raise ValueError(f"an instance of node {node.key!r} is out of range")
        found.append(MeasuredNode(node.key, Kind(node.kind), node.shape, instance[here], mean[here], count[here]))
    return found
