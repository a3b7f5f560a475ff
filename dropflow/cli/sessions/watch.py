"""``dropflow watch``: follow a session to its end, also while its manager is away."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from dropflow.api.patience import PAUSE, Patience, may_recover
from dropflow.cli.common_options import connection_options, output_options, patience_option, session_argument
from dropflow.cli.exit_status import Exit, exit_for_status
from dropflow.cli.output import CommandOutput, OutputKind, shell_command
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, LinkError, NotFoundError
from dropflow.states import UNKNOWN
from dropflow.submission.options import ConnectionOptions
from dropflow.submission.progress import session_progress, statistics_of

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.api.drop_records import ResultInfo
    from dropflow.api.session_records import SessionDetail, SessionInfo

_WATCH_SECONDS = 2.0
"""Seconds that one request waits at the manager for a change."""
_LATE_SECONDS = 5.0
"""Time without an answer after which that is reported."""
_TIMEOUT = 20.0
"""Seconds after which a request is given up, and sent again over another connection."""


@click.command("watch")
@output_options
@session_argument
@connection_options
@patience_option
@click.option("--once", is_flag=True, help="Show it as it is now, and end: progress by logical node, and failures.")
def watch_command(
    output: CommandOutput, *, manager: ConnectionOptions, session: str, patience: float, once: bool
) -> Exit:
    """Follow SESSION live until it is over, and report how it ended, or show it --once.

    While the manager is away, also at the start, standard error reports it and the manager is asked again (see
    --patience). A wrong address or token ends the command immediately.

    Exit status 0 if the session FINISHED, 1 if it FAILED or was CANCELLED, 3 if its end is not known because the
    manager or nodes do not answer, and 130 if you stopped watching: the session continues. With --once, it is 0 for a
    session that still runs, too.
    """
    from dropflow.cli.sessions.session_replies import SessionReply
    from dropflow.submission.connection import connect_to, manager_url

    url = manager_url(manager)
    try:
        if once:
            with connect_to(url, manager) as client:
                detail = client.session(session)
        else:
            detail = follow(manager, url, session, output, patience=patience)
    except KeyboardInterrupt:
        output.note(f"stopped watching; session {session} continues")
        return Exit.INTERRUPTED
    output.answer(SessionReply.of(detail, manager=url, results=_results(manager, url, detail)))
    return exit_for_status(detail.status)


def _results(manager: ConnectionOptions, url: str, detail: "SessionDetail") -> "tuple[ResultInfo, ...]":
    """Return the results of a session in which drops have failed, to say which of them lack data."""
    from dropflow.submission.connection import connect_to

    if not detail.failures:
        return ()
    with suppress(DropflowError), connect_to(url, manager) as client:
        return client.results(detail.session).results
    return ()


def answer_started(
    output: CommandOutput,
    manager: ConnectionOptions,
    url: str,
    info: "SessionInfo",
    *,
    patience: float | None,
    parts: int = 0,
) -> Exit:
    """Answer with a session that was started: as it is now or, with the patience of ``--wait``, how it has ended.

    Parameters
    ----------
    parts : int
        Parts of its graph; one for each of its nodes unless given.
    """
    from dropflow.cli.sessions.session_replies import SubmitReply, exit_of_session

    if patience is not None:
        try:
            info = follow(manager, url, info.session, output, patience=patience, known=info)
        except KeyboardInterrupt:
            output.note(
                f"stopped waiting; session {info.session} continues. Watch it with "
                f"{shell_command('watch', info.session)}, stop it with {shell_command('cancel', info.session)}"
            )
            return Exit.INTERRUPTED
    parts, waited = parts or max(len(info.nodes), 1), patience is not None
    output.answer(SubmitReply.of(info, manager=url, parts=parts, waited=waited))
    return exit_of_session(info) if waited else Exit.FINISHED


def follow(
    manager: ConnectionOptions,
    url: str,
    session: str,
    output: CommandOutput,
    *,
    patience: float,
    known: "SessionInfo | None" = None,
) -> "SessionDetail":
    """Show the progress of a session until it is over, and return how it ended.

    The session does not depend on this. While the manager is away or the state of the session is unknown, standard
    error reports it and the manager is asked again.

    Parameters
    ----------
    manager : ConnectionOptions
        The credentials. They are looked up again for each connection, because a manager that was started again has
        another token.
    url : str
        Address of the manager.
    patience : float
        Seconds for which to keep asking.
    known : SessionInfo, optional
        An earlier answer of the manager. Without one, an error that a wrong address or a wrong token may have caused is
        raised immediately.

    Returns
    -------
    SessionDetail
        Over; or with the status UNKNOWN, if the manager has not known more for `patience` seconds.

    Raises
    ------
    NotFoundError
        There is no such session.
    LinkError
        The manager has been away for `patience` seconds, or the session was deleted meanwhile.
    DropflowError
        The manager refused the first request, or there is no such manager.
    """
    from dropflow.submission.connection import connect_to

    outage = _Outage(output, patience, SystemClock())
    pause = threading.Event()
    detail: SessionDetail | None = None
    with session_progress(quiet=output.kind is OutputKind.QUIET) as show:
        while True:
            try:
                with connect_to(url, manager, timeout=_TIMEOUT) as client:
                    for snapshot in _snapshots(client, session, detail, outage):
                        known = detail = snapshot
                        show(statistics_of(detail))
                        outage.report_waiting(detail)
                        if detail.is_over or outage.is_too_long:
                            return detail
            except NotFoundError as error:
                if known is None:
                    raise
                text = f"session {session} was deleted, or {url} is another manager now; how it ended is not known"
                raise LinkError(text, where=url) from error
            except DropflowError as error:
                if not (may_recover(error) if known is not None else _is_away(error)):
                    raise
                outage.begin(f"the manager at {url}: {error.text}")
                if outage.is_too_long:
                    raise LinkError(
                        f"the manager has been away for {patience:g} s: {error.text}",
                        where=url,
                        hint=f"session {session} does not depend on it; {shell_command('watch', session)} asks again",
                    ) from error
            pause.wait(PAUSE)


class _Outage:
    """Reports on standard error why the state of the session is unknown, and what a session that runs waits for."""

    def __init__(self, output: CommandOutput, patience: float, clock: Clock) -> None:
        self._output = output
        self._patience = Patience(patience, clock)
        self._text = ""
        self._waiting = ""

    @property
    def is_too_long(self) -> bool:
        """Whether the state has been unknown for longer than the patience."""
        return self._patience.is_over

    def begin(self, text: str) -> None:
        """Note why the state is unknown. Each reason is printed once."""
        self._patience.begin()
        if text != self._text:
            self._text = text
            self._output.note(f"{text}; asking again for up to {self._patience.seconds:g} s")

    def end(self) -> None:
        """Note that the state is known."""
        self._patience.end()
        if self._text:
            self._text = ""
            self._output.note("the state of the session is known again")

    def report_waiting(self, detail: "SessionDetail") -> None:
        """Note what a session that runs waits for, such as a majority of its nodes. Each reason is printed once."""
        text = "" if detail.is_over or detail.status == UNKNOWN else detail.text
        if text not in ("", self._waiting):
            self._output.note(f"session {detail.session}: {text}")
        self._waiting = text

    @contextmanager
    def watching(self, url: str) -> Iterator[None]:
        """Report an outage when the request in this context takes long."""
        text = f"the manager at {url} has not answered for {_LATE_SECONDS:g} s"
        timer = threading.Timer(_LATE_SECONDS, self.begin, [text])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # so that an outage does not begin after the answer


def _snapshots(
    client: "Client", session: str, last: "SessionDetail | None", outage: _Outage
) -> "Iterator[SessionDetail]":
    """Yield the session immediately, then whenever it changed or some seconds have passed."""
    pause = threading.Event()
    while True:
        with outage.watching(client.url):
            if last is None:
                last = client.session(session)
            else:
                last = client.watch(session, version=last.version, seconds=_WATCH_SECONDS)
        if last.status == UNKNOWN:
            outage.begin(f"the state of session {session} is not known: {last.text or 'nodes do not answer'}")
        else:
            outage.end()
        yield last
        pause.wait(PAUSE)


def _is_away(error: DropflowError) -> bool:
    """Return whether this error of a manager that never answered means that it is away now.

    An unknown host name or an untrusted certificate is more likely a mistake in the address.
    """
    return error.retryable and not isinstance(error.__cause__, socket.gaierror | ssl.SSLError)
