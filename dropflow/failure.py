"""A failure as data: what an attempt left behind when it did not succeed."""

from types import TracebackType

import msgspec

from dropflow.errors import DropflowError, HttpError, WorldError
from dropflow.exception_text import name_of, sendable, summary_of, trace_of

__all__ = ["Failure"]

_DETAIL = 20_000


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why something failed, small enough to keep and to send.

    Every text is cut and made fit for UTF-8 when a failure is made, since it may come from code of users.

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

    def __post_init__(self) -> None:
        for name in ("code", "kind", "text", "hint"):
            msgspec.structs.force_setattr(self, name, sendable(getattr(self, name)))
        msgspec.structs.force_setattr(self, "detail", sendable(self.detail, _DETAIL, keep_end=True))

    @classmethod
    def of(cls, error: BaseException, *, detail: str = "", frames: TracebackType | None = None) -> "Failure":
        """The failure that `error` stands for; the traceback's tail becomes its detail unless one is given.

        The traceback begins at `frames` if they are given.

        Whatever the methods of `error` do, nothing is raised but `dropflow.errors.CancelledRunError`.
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
                )
        except BaseException:  # noqa: BLE001, S110 - a subclass of users; what follows asks it for nothing but a text
            pass
        return cls(
            code="DF105",
            kind=name_of(error),
            text=summary_of(error),
            retryable=True,
            detail=detail or trace_of(error, frames or error.__traceback__),
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
