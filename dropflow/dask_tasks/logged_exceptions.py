"""Exceptions of tasks in the logs of their drops, so that the client can raise them again."""

import base64
import pickle
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import cloudpickle

from dropflow.apps.app_interface import Context
from dropflow.failure import sendable, summary_of

_EXCEPTION = "exception as a pickle: "
_LONGEST = 1 << 17
"""Bytes of the largest compressed pickle that is written: a log that is full keeps its last 250,000 bytes."""
_LARGEST = 1 << 22
"""Bytes of the largest pickle that is compressed."""
_SHORT = 1 << 15
"""Bytes of an argument or attribute, or of its text, if the exception is too large as it is."""


def log_exception(context: Context, error: BaseException) -> None:
    """Write an exception to the log of the drop, so that the client can raise it again."""
    with suppress(Exception):  # the class of the exception may do anything; then its text has to do
        context.log(_EXCEPTION + base64.b64encode(_pickled(error)).decode(), "DEBUG")


def _pickled(error: BaseException) -> bytes:
    """Return a compressed pickle of an exception.

    The pickle of many classes cannot be loaded, or has another text then: their constructors pass other arguments on
    than they take. Then the class, the arguments and the attributes are pickled. What cannot be pickled, or is too
    large, becomes a text.
    """
    for dumps in (pickle.dumps, cloudpickle.dumps):
        with suppress(Exception):
            body = _compressed(error, dumps)
            if summary_of(_loaded(body)) == summary_of(error):
                return body
    with suppress(Exception):
        return _compressed(_Parts(error, _LARGEST), cloudpickle.dumps)
    return _compressed(_Parts(error, _SHORT), cloudpickle.dumps)


def _compressed(item: object, dumps: Callable[..., bytes]) -> bytes:
    body = dumps(item, protocol=5)
    if len(body) > _LARGEST or len(packed := zlib.compress(body)) > _LONGEST:
        raise ValueError("it is too large")
    _loaded(packed)
    return packed


def _loaded(packed: bytes) -> Any:
    return pickle.loads(zlib.decompress(packed))  # noqa: S301 - from a task of the same user


class _Parts:
    """An exception that is made again without its constructor when this is unpickled."""

    def __init__(self, error: BaseException, most: int) -> None:
        _, args, *state = _plain_class(type(error)).__reduce__(error)
        attributes = {name: _or_text(value, most) for name, value in (state[0] if state else {}).items()}
        self._parts = type(error), tuple(_or_text(value, most) for value in args), attributes

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, self._parts


class _Text(str):
    """Stands for an object that cannot be pickled, and is shown as that."""

    __slots__ = ()
    __repr__ = str.__str__


def _or_text(value: Any, most: int) -> Any:
    """Return a value, or its text if it cannot be pickled or its pickle is larger than `most`."""
    with suppress(Exception):
        if len(body := cloudpickle.dumps(value, protocol=5)) <= most:
            pickle.loads(body)  # noqa: S301 - our own
            return value
    return _Text(sendable(value if isinstance(value, str) else repr(value), _SHORT))


def _made_again(kind: type[BaseException], args: Sequence[Any], attributes: dict[str, Any]) -> BaseException:
    plain = _plain_class(kind)
    error: BaseException = plain.__new__(kind, *args)
    plain.__init__(error, *args)
    error.__setstate__(attributes)
    return error


def _plain_class(kind: type[BaseException]) -> Any:
    """Return the class of Python from which a class of exceptions is derived."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def exception_in_log(log: bytes) -> BaseException | None:
    """Return the last exception in the log of a drop; None if there is none that can be loaded here."""
    _, marker, rest = log.rpartition(_EXCEPTION.encode())
    if not marker:
        return None
    try:
        error = _loaded(base64.b64decode(rest.split(b"\n", 1)[0]))
    except Exception:  # noqa: BLE001 - its module may be missing here; then its text has to do
        return None
    return error if isinstance(error, BaseException) else None


def without_exceptions(log: bytes) -> bytes:
    """Return a log without the lines that have exceptions."""
    return b"".join(line for line in log.splitlines(keepends=True) if _EXCEPTION.encode() not in line)
