"""Commands that continue either the run in a directory or a session of a manager."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions
from dropflow.cli.output import CommandOutput
from dropflow.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from dropflow.rest.client import Client
    from dropflow.rest.session_records import SessionInfo

__all__ = ["continue_session", "is_directory", "session_options"]

_OF_DIRECTORIES = ("runner", "workers", "infrastructure_retries", "durable", "grace")
_OF_SESSIONS = ("url", "token", "key", "wait", "patience", "without_missing")


def session_options(function: Callable[..., Exit]) -> Callable[..., Exit]:
    """Add the options that are about sessions of managers only."""
    function = click.option(
        "--without-missing",
        is_flag=True,
        help="Continue a session although most of its nodes are missing: only if they are off, or gone for good.",
    )(function)
    return click.option("--wait", is_flag=True, help="Follow the session of a manager to its end.")(function)


def is_directory(run: str) -> bool:
    """Return whether RUN of the present command is the directory of a run, and not a session of a manager.

    It is if there is such a directory, or if it is written as a path; it is not with ``--to``.

    Raises
    ------
    UsageError
        An option was given that the other kind of run has.
    """
    context = click.get_current_context()
    is_run = Path(run, "graph.dfg").exists() or Path(run, "journal.dfj").exists() or "/" in run or run in (".", "..")
    here = is_run and not _is_given(context, "url")
    if not is_run and Path(run).is_dir() and _no_manager(context):
        raise NotFoundError(
            "the directory has no run: there is neither graph.dfg nor journal.dfj in it",
            where=run,
            hint="give the directory of 'dropflow run --keep'; --to URL names the manager of a session of this name",
        )
    wrong = [name for name in (_OF_SESSIONS if here else _OF_DIRECTORIES) if _is_given(context, name)]
    if wrong:
        options = {param.name: param.opts[-1] for param in context.command.params}
        what = "the directory of a run" if here else "a session of a manager, which keeps the options of its submission"
        raise UsageError(
            f"{', '.join(options[name] for name in wrong)} cannot be used: {run} is {what}",
            hint="leave it out; a directory is given with its path, such as ./NAME, and a session with --to URL",
        )
    return here


def continue_session(
    output: CommandOutput,
    manager: ConnectionOptions,
    call: "Callable[[Client], SessionInfo]",
    *,
    wait: bool,
    patience: float,
) -> Exit:
    """Continue a session by `call`, and answer as ``dropflow submit`` does."""
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import exit_of_session
    from dropflow.cli.submit import SubmitReply
    from dropflow.cli.watch import follow

    with connect(manager) as client:
        info = call(client)
        if not wait:
            info = client.session(info.session)
            output.answer(SubmitReply.of(info, manager=client.url, parts=max(len(info.nodes), 1), waited=False))
            return Exit.FINISHED
        try:
            detail = follow(manager, client.url, info.session, output, patience=patience, known=info)
        except KeyboardInterrupt:
            output.note(f"stopped waiting; session {info.session} continues")
            return Exit.INTERRUPTED
        output.answer(SubmitReply.of(detail, manager=client.url, parts=max(len(detail.nodes), 1), waited=True))
    return exit_of_session(detail)


def _no_manager(context: click.Context) -> bool:
    """Whether no manager is named, and none runs on this host: RUN cannot be a session."""
    from dropflow.cli.manager_records import records_here

    named = context.get_parameter_source("url") in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return not named and not records_here()


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE
