"""A failure as data: what an attempt left behind when it did not succeed."""

import traceback

import msgspec

from dropflow.errors import DropflowError, HttpError, WorldError

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

    def as_error(self) -> DropflowError:
        """The error that this failure came from, as its own class where dropflow has one for its code."""
        kind = _class_of(self.code, DropflowError)
        # What only HTTP knows was refused by another manager, for which this one answers.
        error = HttpError(502, self.text, hint=self.hint) if kind is HttpError else kind(self.text, hint=self.hint)
        if self.detail:
            error.add_note(self.detail)
        return error


def _class_of(code: str, root: type[DropflowError]) -> type[DropflowError]:
    """Class of the error tree below `root` that answers to `code`; `WorldError` for a code of another version."""
    if root.code == code:
        return root
    found = (_class_of(code, child) for child in root.__subclasses__())
    return next((kind for kind in found if kind.code == code), WorldError)
