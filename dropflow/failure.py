"""A failure as data: why an attempt, or something else, did not succeed."""

from types import TracebackType

import msgspec

from dropflow.errors import DropflowError, HttpError, ResultLostError, WorldError
from dropflow.exception_text import name_of, sendable, summary_of, trace_of

__all__ = ["Failure"]

_DETAIL = 20_000


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
    """

    code: str
    kind: str
    text: str
    hint: str = ""
    retryable: bool = False
    detail: str = ""
    infrastructure: bool = False
    is_innocent: bool = False

    def __post_init__(self) -> None:
        for name in ("code", "kind", "text", "hint"):
            msgspec.structs.force_setattr(self, name, sendable(getattr(self, name)))
        msgspec.structs.force_setattr(self, "detail", sendable(self.detail, _DETAIL, keep_end=True))

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
            code="DF105",
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


def _class_of(code: str, root: type[DropflowError]) -> type[DropflowError]:
    """Return the class below `root` that has this code; `WorldError` for a code of another version."""
    if root.code == code:
        return root
    found = (_class_of(code, child) for child in root.__subclasses__())
    return next((kind for kind in found if kind.code == code), WorldError)
