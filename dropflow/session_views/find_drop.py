"""Finds a drop of a session by its whole id, by the end of an id that no other drop has, or by its name.

A row number is never an id: rows are found with `DropQuery.row`.
"""

from collections.abc import Callable

from dropflow.errors import AmbiguousError, LinkError, NotFoundError
from dropflow.graph.text_ids import ambiguous
from dropflow.rest.session_records import DropInfo, DropPage, DropQuery

__all__ = ["find_drop"]

_SHOWN = 3


def find_drop(find: Callable[[DropQuery], DropPage], text: str, *, session: str) -> DropInfo:
    """Return the drop with this id.

    Parameters
    ----------
    find : callable
        Finds drops of the session, on all nodes at or below a manager.
    text : str
        A whole id, the end of one, or a name; see `dropflow.graph.text_ids.drops_named`.
    session : str
        Its name, for errors.

    Raises
    ------
    NotFoundError
        There is no such drop.
    AmbiguousError
        It is not a whole id, and several ids end in it, or several drops have that name, or may: some drops of the
        session are not at or below the manager.
    LinkError
        A node does not answer that may hold the drop, or another one whose id ends in it.
    """
    if not text:
        raise NotFoundError("no drop has an empty id", where=session)
    whole = find(DropQuery(oid=text, limit=1))
    if whole.drops:
        return whole.drops[0]
    page, what = find(DropQuery(ending=text, limit=_SHOWN)), "end in"
    if not page.drops and not page.missing:
        page, what = find(DropQuery(name=text, limit=_SHOWN)), "are named"
    if page.total > 1:
        raise ambiguous(text, page.total, [drop.oid for drop in page.drops], what=what)
    if page.missing:
        silent = ", ".join(page.missing)
        if page.drops:
            raise LinkError(
                f"{text!r} may name several drops, because {silent} does not answer",
                where=session,
                hint=f"give the whole id, for example {page.drops[0].oid}",
            )
        raise LinkError(
            f"drop {text!r} of session {session!r} is on no node that answers",
            where=session,
            hint=f"it may be on {silent}, which does not answer",
        )
    if not page.drops:
        raise NotFoundError(f"there is no drop {text!r}", where=session, hint="see the list of its drops")
    if page.held < page.whole:
        raise AmbiguousError(
            f"{text!r} may be the end of several ids: only {page.held} of {page.whole} drops are here",
            where=session,
            hint=f"give the whole id, for example {page.drops[0].oid}, or ask a manager of the whole session",
        )
    return page.drops[0]
