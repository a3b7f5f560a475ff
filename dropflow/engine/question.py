"""Questions of other threads to who owns a state: answered by the owner, between two of its steps."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from dropflow.errors import WorldError

__all__ = ["Question"]

_ANSWER_SECONDS = 20.0

S = TypeVar("S")
T = TypeVar("T")


class Question(Generic[S, T]):
    """Something that another thread wants to know of a session."""

    def __init__(self, question: Callable[[S], T]) -> None:
        self._question = question
        self._answered = threading.Event()
        self._answer: T | None = None
        self._error: Exception | None = None

    def answer(self, session: S) -> None:
        """Answer it; what goes wrong is raised where it was asked."""
        try:
            self._answer = self._question(session)
        except Exception as error:  # noqa: BLE001 - raised again by `wait`
            self._error = error
        self._answered.set()

    def wait(self) -> T:
        """The answer."""
        if not self._answered.wait(_ANSWER_SECONDS):
            raise WorldError(
                f"the session has not answered for {_ANSWER_SECONDS:g} s",
                hint="it waits for a disk, or for another node; try again",
            )
        if self._error is not None:
            raise self._error
        return cast(T, self._answer)
