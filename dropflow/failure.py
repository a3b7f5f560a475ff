"""Failures as data: of attempts and graphs, and texts of exceptions."""

import traceback
from collections.abc import Iterable
from enum import StrEnum
from types import TracebackType
from typing import Any

import msgspec

from dropflow.errors import AppError, BadGraphError, DropflowError, HttpError, Interrupted, ResultLostError, WorldError

_DETAIL_CHARACTERS = 20_000
"""Characters of the detail of a failure, which ends with the most important ones."""
_INPUTS, _INPUT = 60, 500
_TEXT_CHARACTERS = 4000
"""Characters of any other text of a failure."""
_MESSAGE_CHARACTERS = 3000
"""Characters of the message of an exception: a failure may add some to it."""
_TRACE_LINES = 40
"""Lines at the end of a traceback that are kept."""
_TRACE_LINE_CHARACTERS = 2000
"""Characters of one line of a traceback."""
_NOTE_CHARACTERS = 50
"""Characters that are left for the note about what was cut off."""
_type_name = type.__dict__["__name__"].__get__  # a metaclass may have a property of that name


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why something failed, small enough to keep and to send.

    Every text is cut and made encodable in UTF-8 when a failure is made, since it may come from user code.

    Attributes
    ----------
    code : str
        Stable code of the error's class (`dropflow.errors`).
    kind : str
        Class name of the original exception, such as ``ModuleNotFoundError``.
    text : str
        What went wrong, one sentence.
    hint : str
        What to do about it.
    retryable : bool
        Whether another attempt may succeed.
    infrastructure : bool
        Whether the process of the attempt failed, and not its application. Such attempts are repeated apart from the
        tries of the application.
    is_innocent : bool
        Whether the attempt had nothing to do with such a failure: it was over when its process died.
    detail : str
        Tail of the traceback or of the command's output.
    inputs : tuple of str
        What went into the attempt: a line for each input and argument, as far as it is known; then, if the session
        reports them, one for each local variable of the function that raised.
    """

    code: str
    kind: str
    text: str
    hint: str = ""
    retryable: bool = False
    detail: str = ""
    infrastructure: bool = False
    is_innocent: bool = False
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("code", "kind", "text", "hint"):
            msgspec.structs.force_setattr(self, name, sendable(getattr(self, name)))
        msgspec.structs.force_setattr(self, "detail", sendable(self.detail, _DETAIL_CHARACTERS, keep_end=True))
        msgspec.structs.force_setattr(self, "inputs", tuple(sendable(line, _INPUT) for line in self.inputs[:_INPUTS]))

    @classmethod
    def of(cls, error: BaseException, *, detail: str = "", frames: TracebackType | None = None) -> "Failure":
        """Return `error` as a failure. Its detail is the end of the traceback, from `frames` on, unless one is given.

        Methods of `error` may raise: only `dropflow.errors.Interrupted` is passed on.
        """
        try:
            if isinstance(error, DropflowError):
                return cls(
                    code=error.code,
                    kind=name_of(error.__cause__ or error),
                    text=error.text,
                    hint=error.hint,
                    retryable=bool(error.retryable),
                    detail=detail,
                    infrastructure=bool(error.infrastructure),
                    is_innocent=isinstance(error, ResultLostError),
                )
        except BaseException:  # noqa: BLE001, S110 - a subclass in user code; what follows only uses its text
            pass
        return cls(
            code=AppError.code,
            kind=name_of(error),
            text=summary_of(error),
            retryable=True,
            detail=detail or trace_of(error, frames or error.__traceback__),
        )

    def as_error(self) -> DropflowError:
        """Return the failure as an error, of the class that has its code."""
        kind = _class_of(self.code, DropflowError)
        # An error of HTTP came from another manager: to a client of this one, that is a bad gateway.
        error = HttpError(502, self.text, hint=self.hint) if kind is HttpError else kind(self.text, hint=self.hint)
        if self.detail:
            error.add_note(self.detail)
        return error


class RootCause(msgspec.Struct, frozen=True, kw_only=True):
    """One root cause: the drop that failed by itself, and the number of drops in ERROR because of it, itself included.

    `took_along` of them are other drops. A drop that was cancelled alone is a cause too, and not in ERROR itself. The
    counts of all causes add up to the drops in ERROR, and `took_along` to those that others took along.

    A lost node is a root cause too: then `drop` is empty, `name` is the name of the node, `count` the number of drops
    that are lost or cancelled because of it, and `drops` the first of those on the node itself. `row` is the drop's row
    in the whole graph, which identifies the cause on all nodes; -1 for a lost node. `inputs` has a line for each input
    and argument of the attempt.
    """

    drop: str
    name: str
    code: str
    kind: str
    text: str
    hint: str = ""
    detail: str = ""
    inputs: tuple[str, ...] = ()
    count: int = 1
    took_along: int = 0
    attempts: int = 1
    drops: tuple[str, ...] = ()
    row: int = -1


def _class_of(code: str, root: type[DropflowError]) -> type[DropflowError]:
    """Return the class below `root` that has this code; `WorldError` for a code of another version."""
    if root.code == code:
        return root
    kinds = (_class_of(code, child) for child in root.__subclasses__())
    return next((kind for kind in kinds if kind.code == code), WorldError)


# The name, text and traceback of an exception that user code has raised.
#
# `str()` of such an exception may raise, exit, or return something that is not a string, 100 MB of text, or characters
# that UTF-8 cannot encode. The functions here raise nothing but `Interrupted`, which interrupts a `__str__` that does
# not end. What they return can be sent and stored.


def name_of(error: BaseException) -> str:
    """Return the name of the exception's class."""
    return sendable(_type_name(type(error)), 200)


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, or why it cannot be computed."""
    try:
        return sendable(str(error), _MESSAGE_CHARACTERS)
    except Interrupted:
        raise
    except BaseException as problem:  # noqa: BLE001 - __str__ is user code, which may raise anything
        return f"its text is not available: __str__ raised {name_of(problem)}"


def summary_of(error: BaseException) -> str:
    """Return the name and text of an exception, as in the last line of its traceback."""
    name, text = name_of(error), text_of(error)
    return f"{name}: {text}" if text else name


def trace_of(error: BaseException, frames: TracebackType | None) -> str:
    """Return the last lines of the traceback of `error`, from `frames` on."""
    try:
        lines = "".join(traceback.format_exception(type(error), error, frames)).splitlines()[-_TRACE_LINES:]
        return "".join(sendable(line, _TRACE_LINE_CHARACTERS) + "\n" for line in lines)
    except Interrupted:
        raise
    except BaseException as problem:  # noqa: BLE001 - notes, causes and attributes are user code
        return f"the traceback is not available: {name_of(problem)} was raised while it was formatted\n"


def sendable(text: Any, most: int = _TEXT_CHARACTERS, *, keep_end: bool = False) -> str:
    """Return `text` as a plain string that UTF-8 can encode. If it is longer than `most`, it is cut, with a mark.

    Parameters
    ----------
    text : Any
        A string; for any other object, the name of its type is returned.
    most : int
        Characters of the result; more than 50.
    keep_end : bool
        Keep the end instead of the beginning.
    """
    if not isinstance(text, str):
        return f"<{_type_name(type(text))} in place of a text>"
    plain = text if type(text) is str else str.__str__(text)  # the methods of a subclass may do anything
    plain = _cut(plain, most, keep_end=keep_end)
    return plain if plain.isascii() else _cut(plain.encode(errors="backslashreplace").decode(), most, keep_end=keep_end)


def _cut(text: str, most: int, *, keep_end: bool) -> str:
    if len(text) <= most:
        return text
    kept = most - _NOTE_CHARACTERS
    note = f"{len(text) - kept} characters left out"
    return f"[{note} ...]{text[-kept:]}" if keep_end else f"{text[:kept]}[... {note}]"


# Problems of a graph: each with a stable code, a severity, a place and a hint.


class Severity(StrEnum):
    """Severity of a problem. Only an error stops a translation."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem.

    Attributes
    ----------
    code : str
        Stable code; `translator.problem_codes.CODES` has them all.
    severity : Severity
        Errors stop the translation.
    where : str
        JSON pointer into the document, or the name of a file.
    text : str
        What is wrong, naming the node, field or edge.
    hint : str
        What to do.
    """

    code: str
    severity: Severity
    where: str
    text: str
    hint: str = ""


def refuse_no_drops(drops: int, *, name: str = "") -> None:
    """Raise if a graph that is to run has no drops.

    Raises
    ------
    BadGraphError
        It has none.
    """
    if not drops:
        hint = "draw a component, and give the constructs around it at least one copy"
        raise BadGraphError("the graph has no drops", where=name, hint=hint)


def refuse_errors(problems: Iterable[Problem], *, name: str = "") -> None:
    """Raise `BadGraphError` with all problems if one of them is an error.

    Raises
    ------
    BadGraphError
        Names the first error and how many more there are.
    """
    findings = tuple(problems)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = errors[0]
        raise BadGraphError(
            f"{first.code} {first.text}{more}",
            problems=findings,
            where=": ".join(part for part in (name, first.where) if part),
            hint=first.hint,
        )
