"""The logical graph that a physical graph was made from: a note, which graph files and sessions keep.

With it a session can be run again with other values (``dropflow clone``). It has the file as it was read, and the
configuration and the settings that were applied to it.
"""

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from dropflow.graph.physical import PhysicalGraph

__all__ = ["META", "LogicalNote", "logical_of", "note_logical", "with_more_settings"]

META = "logical"
"""Name of the note in `PhysicalGraph.meta`."""
_LONGEST = 16 << 20
_LONGEST_PACKED = 4 << 20


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
    packed = zlib.compress(document, 6) if len(document) <= _LONGEST else b""
    if not packed or len(packed) > _LONGEST_PACKED:
        return ""
    if isinstance(settings, Mapping):
        settings = [f"{name}={_text(value)}" for name, value in settings.items()]
    note = _Packed(packed, configuration or "", tuple(settings))
    return msgspec.json.encode(note).decode()


def logical_of(graph: PhysicalGraph) -> LogicalNote | None:
    """Return the logical graph that a graph was made from; None if it is not known."""
    with suppress(msgspec.MsgspecError, zlib.error):
        note = msgspec.json.decode(graph.meta.get(META, ""), type=_Packed)
        unpack = zlib.decompressobj()
        document = unpack.decompress(note.zlib, _LONGEST)
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
