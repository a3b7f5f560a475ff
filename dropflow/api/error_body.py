"""Errors as JSON: a status and a body when they are sent, an error of the same class when they are received."""

from typing import Any

import msgspec

from dropflow import errors
from dropflow.errors import DropflowError, HttpError
from dropflow.failure import Problem

# Looked up along the method resolution order, so that every class has a status.
_STATUS: dict[type[DropflowError], int] = {
    errors.UsageError: 400,
    errors.BadGraphError: 422,
    errors.UnknownComponentError: 422,
    errors.MissingDependencyError: 422,
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.AmbiguousError: 409,
    errors.ClockSkewError: 401,
    errors.NotOwnerError: 403,
    errors.QuotaError: 429,
    errors.GoneError: 410,
    errors.RangeError: 416,
    errors.PreviewError: 422,
    errors.WorldError: 503,
    errors.StorageError: 507,
    errors.InternalError: 500,
    errors.DropflowError: 500,
}
_KINDS: dict[str, type[DropflowError]] = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DropflowError)
}
"""The class of error for each code in answers. Errors that other modules define stay in their process."""


class ErrorBody(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """An error in an answer, under the key ``error``.

    Attributes
    ----------
    code : str
        Stable code of the error's class.
    kind : str
        Its name.
    text, where, hint : str
        What is wrong, where, and what to do.
    retryable : bool
        Whether the same request may succeed later.
    problems : tuple of Problem
        All findings about a graph that cannot be used.
    size : int
        Bytes of the content, if the requested part begins after its end.
    """

    code: str
    kind: str
    text: str
    where: str = ""
    hint: str = ""
    retryable: bool = False
    problems: tuple[Problem, ...] = ()
    size: int = 0


def status_of(error: DropflowError) -> int:
    """Return the HTTP status of an error."""
    return error.status if isinstance(error, HttpError) else status_of_class(type(error))


def status_of_class(kind: type[DropflowError]) -> int:
    """Return the HTTP status of the errors of a class."""
    return next(_STATUS[parent] for parent in kind.__mro__ if parent in _STATUS)


def to_body(error: DropflowError) -> ErrorBody:
    """Return the body of an error."""
    findings = getattr(error, "problems", ())
    return ErrorBody(
        code=error.code,
        kind=type(error).__name__,
        text=error.text,
        where=error.where,
        hint=error.hint,
        retryable=error.retryable,
        problems=tuple(finding for finding in findings if isinstance(finding, Problem)),
        size=error.size if isinstance(error, errors.RangeError) else 0,
    )


def from_body(status: int, body: Any) -> DropflowError:
    """Return the error in an answer, as its own class.

    An answer of another form, for example of a proxy, becomes an `HttpError` with its status.
    """
    try:
        wire = msgspec.convert(body["error"], ErrorBody)
    except (KeyError, TypeError, msgspec.ValidationError):
        return HttpError(status, f"the server answered with status {status} in a form that is not dropflow's")
    if wire.code == HttpError.code:
        return HttpError(status, wire.text, where=wire.where, hint=wire.hint)
    if wire.code == errors.BadGraphError.code:
        return errors.BadGraphError(wire.text, problems=wire.problems, where=wire.where, hint=wire.hint)
    if wire.code == errors.RangeError.code:
        return errors.RangeError(wire.text, size=wire.size, where=wire.where, hint=wire.hint)
    return _KINDS.get(wire.code, DropflowError)(wire.text, where=wire.where, hint=wire.hint)
