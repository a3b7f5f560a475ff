"""Requests to all children that answer, and the replies by kind: what the operations of a composite are made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dropflow.errors import DropflowError, LinkError, NotFoundError
from managers.composite.children import Children, ChildView
from managers.composite.waiting_operations import Gather, Question, Routine, Until

__all__ = ["SECONDS", "Replies", "Requests"]

SECONDS = 2.0
"""How long a request waits for a child that does not answer, the first time."""
_LONGEST = 12.0
"""How long it waits for one that is slow and alive: it may have much to read, or wait for a child of its own."""


@dataclass(frozen=True)
class Replies:
    """The replies to a request.

    Attributes
    ----------
    values : tuple of (ChildView, object)
        Children that answered, in their order, and their answers.
    absent : tuple of ChildView
        Children that have no such session or drop.
    refusals : tuple of (ChildView, DropflowError)
        Children that refused.
    missing : tuple of (ChildView, str)
        Children that were not asked or did not answer, and why.
    """

    values: tuple[tuple[ChildView, Any], ...] = ()
    absent: tuple[ChildView, ...] = ()
    refusals: tuple[tuple[ChildView, DropflowError], ...] = ()
    missing: tuple[tuple[ChildView, str], ...] = ()

    def raise_unless_answered(self, what: str) -> None:
        """Raise an error if no child has answered.

        Raises
        ------
        DropflowError
            The refusal of a child, if there is one: it says more than that others do not have the session.
        NotFoundError
            All children answered that they do not have `what`.
        LinkError
            Some did not answer, and the others do not have it.
        """
        if self.values:
            return
        if self.refusals:
            raise self.refusals[0][1]
        silent = ", ".join(f"{view.name} ({why})" for view, why in self.missing)
        if self.missing:
            # One that does not answer may have it.
            raise LinkError(f"{what} cannot be looked up: {silent}", hint="try again, or see the list of children")
        raise NotFoundError(f"there is no {what}", hint="see the list of sessions")


class Requests:
    """Routines that ask children."""

    def __init__(self, children: Children) -> None:
        self._children = children

    def settle(self, seconds: float = SECONDS) -> Routine[None]:
        """Wait until each child has answered or failed once. A child that does not answer is waited for once only."""
        yield Until(self._children.is_settled, seconds)
        self._children.end_waiting()

    def wait_for_silent(self, urls: Iterable[str], seconds: float) -> Routine[None]:
        """Wait until these children are asked again; a child that missed a deadline is usually just busy."""
        wanted = tuple(urls)
        yield Until(lambda: not any(self._children.is_only_silent(url) for url in wanted), seconds)

    def ask_again(self, seconds: float) -> Routine[None]:
        """Send status requests to the children that do not answer, now and not only when they are due."""
        numbers = self._children.ask_again()
        yield Until(
            lambda: all(self._children.has_answer_after(url, number) for url, number in numbers.items()), seconds
        )

    def ask_all(self, operation: str, *, seconds: float = SECONDS, **arguments: Any) -> Routine[Replies]:
        """Call an operation of all children."""
        yield from self.settle(seconds)
        views = self._children.by_url()
        replies = yield from self.ask_each(operation, dict.fromkeys(views, arguments), views=views, seconds=seconds)
        return replies

    def ask_each(
        self,
        operation: str,
        arguments: Mapping[str, Mapping[str, Any]],
        *,
        views: Mapping[str, ChildView],
        seconds: float = SECONDS,
    ) -> Routine[Replies]:
        """Call an operation of some children, with arguments for each, by URL."""
        asked = tuple(Question(url, operation, each) for url, each in arguments.items() if views[url].is_asked)
        outcomes = yield Gather(asked, seconds, longest=max(seconds, _LONGEST))
        values: list[tuple[ChildView, Any]] = []
        absent: list[ChildView] = []
        refusals: list[tuple[ChildView, DropflowError]] = []
        missing = [(views[url], views[url].text) for url in arguments if not views[url].is_asked]
        for url, outcome in outcomes.items():
            error = outcome.error
            if error is None:
                values.append((views[url], outcome.value))
            elif isinstance(error, NotFoundError):
                absent.append(views[url])
            elif isinstance(error, LinkError):
                self._children.silence(url, error.text)
                missing.append((views[url], error.text))
            else:
                refusals.append((views[url], error))
        return Replies(tuple(values), tuple(absent), tuple(refusals), tuple(missing))
