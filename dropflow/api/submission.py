"""The submission of a graph to a manager that may answer late: one session is started, also if the answer is lost.

Its options are noted in the graph.
"""

import secrets
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from dropflow.clock import SystemClock
from dropflow.errors import ConflictError, DropflowError, HttpError, LinkError, NotFoundError
from dropflow.graph.physical import PhysicalGraph, is_fused, without_fusion
from dropflow.ids import dated_session_name
from dropflow.session_options import SubmitOptions, chosen_of
from dropflow.states import SessionState

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.api.patience import PatientClient
    from dropflow.api.requests import SubmitQuery
    from dropflow.api.session_records import SessionInfo


_NAMES = 10
"""How many names are tried, if none was given."""
_AWAY = (502, 503, 504)
"""Status that a proxy answers with while a manager is away, or late."""
_NOT_YET = (SessionState.PRISTINE.name, SessionState.BUILDING.name, SessionState.DEPLOYING.name)


def submit_once(manager: "PatientClient", graph: PhysicalGraph, query: "SubmitQuery") -> "SessionInfo":
    """Deploy a graph and start it. If the manager does not answer, it is asked again, and not for a second session.

    The session is found by its name, which is chosen here if the query has none, and by the id of the request, so that
    it is not mistaken for one of another client.

    Parameters
    ----------
    manager : PatientClient
        Has reached the manager before: an error of the credentials, for example, is raised at once.
    graph : PhysicalGraph
        The graph.
    query : SubmitQuery
        How to deploy it.

    Raises
    ------
    ConflictError
        Another session has the name that was given.
    LinkError
        There was no answer for a while. The session may have been started.
    DropflowError
        The manager refused the graph.
    """
    wanted = query.session or dated_session_name(graph.name, SystemClock().now())
    for number in count(1):
        name = wanted if number == 1 else f"{wanted}-{number}"
        request = msgspec.structs.replace(query, session=name, request_id=secrets.token_hex(16))
        try:
            return _Submission(graph, request).run(manager)
        except ConflictError:
            if query.session or number == _NAMES:
                raise
    raise AssertionError  # the last name returns or raises


class _Submission:
    """One submission, under one name."""

    def __init__(self, graph: "PhysicalGraph", query: "SubmitQuery") -> None:
        self._graph = graph
        self._query = query
        self._was_sent = False

    def run(self, manager: "PatientClient") -> "SessionInfo":
        """Return the session, or raise why there is none."""
        found = manager.ask(self._ask)
        if isinstance(found, DropflowError):
            raise found
        return found

    def _ask(self, client: "Client") -> "SessionInfo | DropflowError":
        """Return the session, or an error that is final; raise one after which it is asked for again.

        Raises
        ------
        LinkError
            The manager does not answer, or the session is being deployed.
        """
        if self._was_sent:
            found = self._found(client)
            if found is not None:
                return found
        was_sent, self._was_sent = self._was_sent, True
        try:
            return client.submit(self._graph, self._query)
        except ConflictError as error:
            if not was_sent:
                return error
            # Of an earlier request, as it seems, whose deployment has begun, or of another client: the next time tells.
            raise LinkError(error.text, where=error.where, hint=error.hint) from error
        except HttpError as error:
            if error.status in _AWAY:
                raise
            return error

    def _found(self, client: "Client") -> "SessionInfo | DropflowError | None":
        """Return the session of an earlier request; an error if another client has the name."""
        name = self._query.session
        try:
            found = client.session(name)
        except NotFoundError:
            return None
        if found.request_id != self._query.request_id:
            return ConflictError(f"there is a session {name!r} already", where=client.url, hint="choose another name")
        if found.status in _NOT_YET:
            raise LinkError(f"session {name!r} is {found.status}", where=client.url, hint="look at its status")
        return found


# The options of its submission in the graph of a session: a note, with which the session can be cloned.

META = "submission"
"""Name of the note in `PhysicalGraph.meta`."""


def note_options(graph: PhysicalGraph, options: SubmitOptions) -> PhysicalGraph:
    """Return the graph with the note of these options, and without fusion if they say so."""
    fused = graph if options.fuse else without_fusion(graph)
    noted = SubmitOptions(**chosen_of(options) | {"fuse": is_fused(fused)})
    return replace(fused, meta={**fused.meta, META: msgspec.json.encode(noted).decode()})


def submission_options(graph: PhysicalGraph) -> SubmitOptions:
    """Return the options that a session with this graph was submitted with; the defaults if they are not known."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(META, ""), type=SubmitOptions)
    return SubmitOptions(fuse=is_fused(graph))


def without_past_walltime(options: SubmitOptions, now: float) -> SubmitOptions:
    """Return the options for another session: without a walltime that has passed."""
    return msgspec.structs.replace(options, until=0.0) if options.until <= now else options
