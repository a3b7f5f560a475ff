"""Values at the ports of the built-in applications: reading them from inputs, writing them to outputs.

Two rules hold for all of them. *Inputs without content are left out, with a warning in the log*: the error threshold of
the application allowed that. *A value keeps its type*: it is written with the encoding of the port if that encoding can
hold it, and pickled otherwise, as DALiuGE's generic applications always do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dropflow.apps.api import Context, InputData, OutputData
from dropflow.apps.missing_inputs import describe_missing
from dropflow.errors import AppError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["array_of", "give", "group_by_port", "usable", "value_of", "values_of"]

_NPY_MAGIC = b"\x93NUMPY"
_HOLDS_VALUES = frozenset({"pickle", "dill", "npy", "json", "eval", "utf-8"})
_HOLDS_BYTES = frozenset({"raw", "binary", "base64"})
_SHOWN = 5


def usable(context: Context) -> list[InputData]:
    """Return the inputs with content, in order. The others are counted and named in the log.

    Raises
    ------
    AppError
        There are inputs, but none has content.
    """
    inputs = context.inputs
    found = [data for data in inputs if data.ok]
    lost = [data for data in inputs if not data.ok]
    if lost:
        if not found:
            raise AppError(
                f"no input has content: {describe_missing(inputs)}",
                hint="lower input_error_threshold, or correct its producers",
            )
        names = ", ".join(data.name or data.oid for data in lost[:_SHOWN])
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        context.log(f"{describe_missing(inputs)}; working without {names}{more}", "WARNING")
    return found


def value_of(context: Context, data: InputData) -> Any:
    """Return the value of an input: decoded with the encoding of its port, else as text, else as bytes.

    Returns a list of values if several producers wrote the content.
    """
    try:
        return data.value(_value_encoding(context, data.port))
    except UsageError:
        return _undecoded(data)


def values_of(context: Context, data: InputData) -> list[Any]:
    """Return all values of an input, decoded as by `value_of`."""
    try:
        return data.values(_value_encoding(context, data.port)) or [None]
    except UsageError:
        return [_undecoded(data)]


def _value_encoding(context: Context, port: str) -> str:
    declared = _encoding(context, port)
    return declared if declared in _HOLDS_VALUES else "pickle"


def _undecoded(data: InputData) -> Any:
    body = data.read()
    if body.startswith(_NPY_MAGIC):
        return _npy(data)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def array_of(context: Context, data: InputData) -> "NDArray[Any]":
    """Return the array of an input that was written as ``npy`` or as a pickle.

    Several arrays of one shape in one content become one array with one more axis.

    Raises
    ------
    AppError
        The content is not an array of numbers.
    """
    import numpy as np  # noqa: PLC0415 - only applications that work with arrays pay for numpy

    value = _npy(data) if data.read().startswith(_NPY_MAGIC) else value_of(context, data)
    try:
        array = np.asarray(value)
    except ValueError as problem:
        raise AppError(f"input '{data.name or data.oid}' is not one array: {problem}") from problem
    if array.dtype.kind not in "biufc":
        raise AppError(
            f"input '{data.name or data.oid}' holds {type(value).__name__} of {array.dtype}, not numbers",
            hint="the producer must write an array of numbers with the encoding npy or pickle",
        )
    return array


def give(context: Context, outputs: Sequence[OutputData], value: Any) -> None:
    """Write `value` to each of `outputs`."""
    for output in outputs:
        declared = _encoding(context, output.port)
        fits = declared in _HOLDS_VALUES or (declared in _HOLDS_BYTES and isinstance(value, bytes))
        output.put(value, declared if fits else "pickle")


def group_by_port(outputs: Sequence[OutputData]) -> dict[str, list[OutputData]]:
    """`outputs` by their port, both in the order of the graph."""
    groups: dict[str, list[OutputData]] = {}
    for output in outputs:
        groups.setdefault(output.port, []).append(output)
    return groups


def _encoding(context: Context, port: str) -> str:
    argument = context.arguments.get(port)
    return argument.encoding.lower() if argument and argument.encoding else "pickle"


def _npy(data: InputData) -> Any:
    try:
        return data.value("npy")
    except AppError as problem:
        raise AppError(f"input '{data.name or data.oid}' is not a whole npy array: {problem.text}") from problem
