"""RUN of a command line: the directory of a run on this machine, or a session of a manager."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.files import GRAPH_FILE, JOURNAL, refuse_other_directory
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.api.session_records import SessionInfo
    from dropflow.web.report import SessionReport
_OF_REUSE = ("reuse", "store", "verify_reuse", "trust_times")
_OF_DIRECTORIES = (
    "runner",
    "workers",
    "infrastructure_retries",
    "retry_memory",
    "durable",
    "containers",
    "check",
    "report_locals",
    "grace",
    *_OF_REUSE,
)
_OF_SESSIONS = ("url", "token", "key", "wait", "patience", "without_missing", "force")


def is_run_directory(run: str, *, other_url: str | None = None) -> bool:
    """Return whether RUN is the directory of a run, and not a session: what is written as a path, or is there.

    Names of sessions have no slash. With ``--to``, or the address of another manager, a name without one is a session.
    """
    has_url = other_url or is_given(click.get_current_context(), "url")
    is_there = not has_url and any(Path(run, name).exists() for name in (GRAPH_FILE, JOURNAL))
    return is_there or "/" in run or run in (".", "..")


def report_of(
    manager: ConnectionOptions, run: str, *, other_url: str | None = None, has_states: bool = False
) -> "SessionReport":
    """Return the report, with results, of the directory of a run, or of a session.

    Parameters
    ----------
    manager : ConnectionOptions
        Names the manager.
    run : str
        A directory if it is written as a path, or if there is a run of that name and no ``--to``.
    other_url : str, optional
        The manager of the session, if it is another one.
    has_states : bool
        Whether the states of the drops of a session are read, too.

    Raises
    ------
    NotFoundError
        There is no such run or session.
    DropflowError
        It cannot be read, or the manager cannot be reached.
    """
    if is_run_directory(run, other_url=other_url):
        from dropflow.sessions.report import run_report

        return run_report(Path(run))
    from dropflow.submission.connection import connect_to, manager_url
    from dropflow.web.report import session_report

    url = manager_url(manager if other_url is None else ConnectionOptions(url=other_url))
    if other_url is not None and manager.url is None:  # the token is for the manager of the options
        manager = ConnectionOptions(key=manager.key)
    with connect_to(url, manager) as client:
        return session_report(client, run, has_results=True, has_states=has_states)


# Commands that continue either the run in a directory or a session of a manager.


def manager_session_options(function: Callable[..., Exit]) -> Callable[..., Exit]:
    """Add the options that are about sessions of managers only."""
    function = click.option(
        "--without-missing",
        is_flag=True,
        help="Continue a session although most of its nodes are missing: only if they are off, or gone for good.",
    )(function)
    return click.option("--wait", is_flag=True, help="Follow the session of a manager to its end.")(function)


def continues_directory(run: str) -> bool:
    """Return whether RUN of the present command is the directory of a run, and not a session of a manager.

    It is if there is such a directory, or if it is written as a path; it is not with ``--to``.

    Raises
    ------
    UsageError
        An option was given that the other kind of run has.
    """
    context = click.get_current_context()
    here = is_run_directory(run)
    refuse_without_run(run)
    wrong = [name for name in (_OF_SESSIONS if here else _OF_DIRECTORIES) if is_given(context, name)]
    if wrong:
        options = {param.name: param.opts[-1] for param in context.command.params}
        what = "the directory of a run" if here else "a session of a manager, which keeps the options of its submission"
        raise UsageError(
            f"{', '.join(options[name] for name in wrong)} cannot be used: {run} is {what}",
            hint="leave it out; a directory is given with its path, such as ./NAME, and a session with --to URL",
        )
    return here


def refuse_without_run(run: str) -> None:
    """Raise if RUN of the present command is a directory that has no run, and can be no session of a manager.

    Raises
    ------
    NotFoundError
        It is one.
    """
    if Path(run).is_dir() and not is_run_directory(run) and _no_manager(click.get_current_context()):
        refuse_other_directory(Path(run))


def continue_session(
    output: CommandOutput,
    manager: ConnectionOptions,
    call: "Callable[[Client], SessionInfo]",
    *,
    wait: bool,
    patience: float,
) -> Exit:
    """Continue a session by `call`, and answer as ``dropflow submit`` does."""
    from dropflow.cli.sessions.watch import answer_started

    with manager.connect() as client:
        info = call(client)
        info = info if wait else client.session(info.session)
        return answer_started(output, manager, client.url, info, patience=patience if wait else None)


def _no_manager(context: click.Context) -> bool:
    """Return whether no manager is named, and none runs on this host: RUN cannot be a session."""
    from dropflow.submission.manager_records import records_here

    named = context.get_parameter_source("url") in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return not named and not records_here()


def is_given(context: click.Context, name: str) -> bool:
    """Return whether an option is on the command line, and not only in the environment."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE
