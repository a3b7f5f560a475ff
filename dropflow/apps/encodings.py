"""Encodings: how values that applications handle become the bytes behind a port, and back.

============  =====================================  ========================================================
encoding      value -> content                       content -> value
============  =====================================  ========================================================
``pickle``    any value that can be pickled          the value; nothing is None
``dill``      the same (default)                     the same
``npy``       an array, or what numpy converts       the array; never executes code
``json``      a JSON value                           the value
``eval``      a Python literal                       the value; nothing is None; never executes code
``utf-8``     text; of other values their ``str()``  the text
``raw``       bytes; text as UTF-8                   the bytes
``binary``    bytes                                  the bytes, all of them
``base64``    bytes                                  the bytes
``path``      a path, as text                        the path of a file with the content
``dataurl``   a URL, as text                         the URL of the content
============  =====================================  ========================================================

Each encoding reads back what it wrote. A value that it cannot hold is an error, and so is a content that it cannot
read.

A content may hold several values, one after the other, if several producers write one data drop or an application joins
its inputs. ``pickle``, ``dill``, ``npy``, ``json`` and ``eval`` then read a list of them, in their order; the other
encodings read the joined text or bytes. If the graph collects at the port, the value is always a list.

Real graphs mix encodings, so reading accepts some contents of another encoding: the content of a text drop at a
``pickle`` port is the text; a pickle in memory (which this session wrote) gives its value at ports of other encodings;
a ``pickle`` port reads an npy array. A file is unpickled only if the encoding of the port is ``pickle`` or ``dill``.

``pickle`` and ``dill`` write the same: a plain pickle if that is enough, else one by cloudpickle, which includes
functions and classes that another process cannot import. The package dill is needed only to read what dill itself
wrote.
"""

import reprlib
from collections.abc import Mapping
from typing import Any

from dropflow.apps.decode_content import SEVERAL, SINGLE, EncodedSource, holds_values
from dropflow.apps.encode_value import ENCODERS, CannotHoldError
from dropflow.errors import AppError, BadParameterError

__all__ = [
    "DEFAULT",
    "ENCODINGS",
    "EncodedSource",
    "canonical",
    "decode",
    "decode_all",
    "encode",
    "holds_values",
    "is_text",
    "separator",
]

DEFAULT = "dill"
"""Encoding of a port that names none."""

ENCODINGS: tuple[str, ...] = tuple(ENCODERS)
"""All encodings."""

_SHOWN = 16
_ALIASES: Mapping[str, str] = {"utf8": "utf-8", "text": "utf-8", "numpy": "npy", "bytes": "binary", "url": "dataurl"}
_TEXTS = frozenset({"utf-8", "path", "dataurl"})
_LINES = frozenset({"json", "eval", "base64", "path", "dataurl"})
"""Encodings whose values need a separator when several follow each other."""


def canonical(encoding: str | None) -> str:
    """Return the name of an encoding as in `ENCODINGS`; `DEFAULT` for None and blank text.

    Raises
    ------
    BadParameterError
        There is no such encoding; the hint lists all.
    """
    name = (encoding or DEFAULT).strip().lower() or DEFAULT
    name = _ALIASES.get(name, name)
    if name not in ENCODINGS:
        raise BadParameterError(f"there is no encoding '{encoding}'", hint=f"a port can have: {', '.join(ENCODINGS)}")
    return name


def is_text(encoding: str) -> bool:
    """Whether contents in `encoding` (a name in `ENCODINGS`) are text."""
    return encoding in _TEXTS


def encode(encoding: str | None, value: Any) -> bytes:
    """Encode a value.

    Parameters
    ----------
    encoding : str or None
        See the table; None is `DEFAULT`.
    value : Any
        The table says what each encoding can hold.

    Raises
    ------
    BadParameterError
        There is no such encoding.
    AppError
        The encoding cannot hold the value.
    """
    name = canonical(encoding)
    try:
        return ENCODERS[name](value)
    except CannotHoldError as problem:
        raise AppError(
            f"encoding '{name}' cannot hold {_describe(value)}: {problem}",
            hint="change the encoding of the output port ('pickle' holds any value), or what is returned",
        ) from problem.__cause__


def separator(encoding: str) -> bytes:
    """Return the separator after a value in `encoding` (a name in `ENCODINGS`) in a content with several producers."""
    return b"\n" if encoding in _LINES else b""


def decode(encoding: str | None, source: EncodedSource) -> Any:
    """Decode the content of `source`: its value, or a list if it holds several.

    Parameters
    ----------
    encoding : str or None
        See the table; None is `DEFAULT`.
    source : EncodedSource
        An input of an attempt.

    Raises
    ------
    BadParameterError
        There is no such encoding.
    AppError
        The content is not in that encoding. The text has the port, the encoding, and the beginning of the content.
    MissingDependencyError
        A package is needed to read it.
    """
    name = canonical(encoding)
    values = decode_all(name, source)
    if name in SEVERAL and source.is_joint and not source.is_text:
        return values
    if len(values) > 1:
        source.warn(f"input '{source.name}' holds {len(values)} values, one after the other: they are read as a list")
        return values
    return values[0] if values else None


def decode_all(encoding: str | None, source: EncodedSource) -> list[Any]:
    """Decode all values in the content of `source`, in order. An empty content has none in some encodings.

    Raises
    ------
    BadParameterError, AppError, MissingDependencyError
        As `decode`.
    """
    name = canonical(encoding)
    try:
        return SEVERAL[name](source) if name in SEVERAL else [SINGLE[name](source)]
    except CannotHoldError as problem:
        where = f"port '{source.port}'" if source.port else "a port without name"
        raise AppError(
            f"input '{source.name}' at {where} is not in encoding '{name}': {problem}; {_begin(source)}",
            hint="give the port the encoding that the producer writes",
        ) from problem.__cause__


def _begin(source: EncodedSource) -> str:
    head = bytes(source.view()[:_SHOWN])
    return f"it begins with {head!r}" if head else "it is empty"


def _describe(value: Any) -> str:
    return f"{type(value).__name__} {reprlib.repr(value)}"
