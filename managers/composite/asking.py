"""One question to the children of a composite, and their replies told apart."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from dropflow.errors import DropflowError, LinkError, NotFoundError
from managers.api import Manager
from managers.composite.children import Children, ChildView
from managers.composite.fanout import Fanout

__all__ = ["SECONDS", "Asker", "Replies"]

SECONDS = 2.0
"""How long people wait for a child that does not answer, once."""
_LONGEST = 12.0
"""How long they wait for one that is slow, but shows that it is alive: it may have much to look through, or be waiting
for a child of its own."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Replies(Generic[Value]):
    """What became of a question.

    Attributes
    ----------
    values : tuple of (ChildView, object)
        Children that answered, in their order, and what.
    absent : tuple of ChildView
        Children that know no such session or drop.
    refusals : tuple of (ChildView, DropflowError)
        Children that would not.
    missing : tuple of (ChildView, str)
        Children that could not be asked or did not answer, and why.
    """

    values: tuple[tuple[ChildView, Value], ...] = ()
    absent: tuple[ChildView, ...] = ()
    refusals: tuple[tuple[ChildView, DropflowError], ...] = ()
    missing: tuple[tuple[ChildView, str], ...] = ()

    def raise_unless_answered(self, what: str) -> None:
        """Raise what the children refused, or that none of them has `what`, if none has answered.

        Raises
        ------
        DropflowError
            What a child refused. It is more to the point than that others do not know the session.
        NotFoundError
            All have answered, and do not have it.
        LinkError
            Some could not be asked, and the others do not have it.
        """
        if self.values:
            return
        if self.refusals:
            raise self.refusals[0][1]
        silent = ", ".join(f"{view.name} ({why})" for view, why in self.missing)
        if self.missing:
            # One that does not answer may have it.
            raise LinkError(f"{what} cannot be looked for: {silent}", hint="try again, or see the list of children")
        raise NotFoundError(f"there is no {what}", hint="see the list of sessions")


class Asker:
    """Asks the children that are worth asking; see `Children` for which those are."""

    def __init__(self, children: Children, fanout: Fanout) -> None:
        self._children = children
        self._fanout = fanout

    def ask(
        self,
        call: Callable[[Manager], Value],
        *,
        seconds: float = SECONDS,
        among: Iterable[ChildView] | None = None,
        discard: Callable[[Value], None] | None = None,
    ) -> Replies[Value]:
        """Ask `call` of all children, or of those `among`; who does not answer is left in peace until it is back."""
        if among is None:
            self._children.settle(seconds)
            among = self._children.views()
        views = {view.url: view for view in among}
        return self.ask_each(
            {url: partial(call, view.manager) for url, view in views.items()},
            views=views,
            seconds=seconds,
            discard=discard,
        )

    def ask_each(
        self,
        calls: dict[str, Callable[[], Value]],
        *,
        views: dict[str, ChildView],
        seconds: float = SECONDS,
        discard: Callable[[Value], None] | None = None,
    ) -> Replies[Value]:
        """As `ask`, with another question to each child, by its address."""
        worth = {url: call for url, call in calls.items() if views[url].is_asked}
        signs = {url: self._children.signs(url) for url in worth}

        def is_alive(url: str) -> bool:
            before, signs[url] = signs[url], self._children.signs(url)
            return signs[url] > before

        longest = max(seconds, _LONGEST)
        outcomes = self._fanout.ask(worth, seconds=seconds, discard=discard, is_alive=is_alive, longest=longest)
        values: list[tuple[ChildView, Value]] = []
        absent: list[ChildView] = []
        refusals: list[tuple[ChildView, DropflowError]] = []
        missing = [(views[url], views[url].text) for url in calls if url not in worth]
        for url, outcome in outcomes.items():
            view = views[url]
            if outcome.error is None:
                values.append((view, outcome.value))  # type: ignore[arg-type]  # None is a value where it is the type
            elif isinstance(outcome.error, NotFoundError):
                absent.append(view)
            elif isinstance(outcome.error, LinkError):
                self._children.silence(url, outcome.error.text)
                missing.append((view, outcome.error.text))
            else:
                refusals.append((view, outcome.error))
        return Replies(tuple(values), tuple(absent), tuple(refusals), tuple(missing))
