"""A failure as data: what an attempt left behind when it did not succeed."""

import traceback

import msgspec

from dropflow.errors import DropflowError

__all__ = ["Failure"]

_TRACEBACK_LINES = 40


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why something failed, small enough to keep and to send.

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
    detail : str
        Tail of the traceback or of the command's output.
    """

    code: str
    kind: str
    text: str
    hint: str = ""
    retryable: bool = False
    detail: str = ""

    @classmethod
    def of(cls, error: BaseException, *, detail: str = "") -> "Failure":
        """The failure that `error` stands for; the traceback's tail becomes its detail unless one is given."""
        if isinstance(error, DropflowError):
            original = error.__cause__ or error
            return cls(
                code=error.code,
                kind=type(original).__name__,
                text=error.text,
                hint=error.hint,
                retryable=error.retryable,
                detail=detail,
            )
        lines = traceback.format_exception(error)
        return cls(
            code="DF105",
            kind=type(error).__name__,
            text=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
            retryable=True,
            detail=detail or "".join(lines)[-_TRACEBACK_LINES * 120 :],
        )
