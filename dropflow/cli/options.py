"""The options that several commands share.

`output_options` is the frame around every command: it gives it an output, prints its errors and sets its exit status.
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, Literal, get_args

import click
import msgspec
from click.core import ParameterSource

from dropflow.cli.candidates import graphs, runners, sessions, settings
from dropflow.cli.error_reply import error_reply, exit_for_error
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import output_for
from dropflow.errors import BadParameterError
from dropflow.rest.patience import PATIENCE
from dropflow.stopping import GRACE_SECONDS

__all__ = [
    "ConnectionOptions",
    "GraphFormat",
    "connection_options",
    "form_option",
    "given_on_command_line",
    "grace_option",
    "graph_argument",
    "infrastructure_retries_option",
    "output_options",
    "patience_option",
    "prefix_option",
    "runner_options",
    "session_argument",
    "setting_options",
    "target_option",
]


def given_on_command_line(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those parameters of the current command that are on the command line."""
    source = click.get_current_context().get_parameter_source
    return tuple(name for name in names if source(name) is ParameterSource.COMMANDLINE)


def output_options(function: Callable[..., Exit]) -> Callable[..., None]:
    """Make `function` a command with ``--output`` and ``--debug`` that never prints a traceback by itself.

    The function gets the `CommandOutput` as its first argument and returns the exit status. An exception becomes an
    `ErrorReply` in the same form as the answer.
    """

    @click.option(
        "--output",
        "kind",
        type=click.Choice(["table", "json", "quiet"]),
        default="table",
        envvar="DROPFLOW_OUTPUT",
        show_default=True,
        show_envvar=True,
        help="Form of the answer on standard output.",
    )
    @click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
    @functools.wraps(function)
    def command(*, kind: str, debug: bool, **options: Any) -> None:
        output = output_for(kind)
        try:
            status = function(output, **options)
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit):
            raise
        except BrokenPipeError:
            # The process that reads the output has ended, as in `dropflow info g.dfg | head`. Python flushes standard
            # output at exit, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = Exit.BROKEN_PIPE
        except Exception as error:  # noqa: BLE001  (every error is printed in the form of the output)
            output.error(error_reply(error, debug=debug))
            status = exit_for_error(error)
        sys.exit(status)

    return command


class ConnectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that name a manager."""

    url: str | None = None
    token: str | None = None
    key: str | None = None


def connection_options(function: Callable[..., Exit]) -> Callable[..., Exit]:
    """Add the options that name a manager; the command gets them as one `ConnectionOptions`."""

    @click.option(
        "--to",
        "url",
        metavar="URL",
        envvar="DROPFLOW_URL",
        show_envvar=True,
        help="The manager; by default the one that runs on this host.",
    )
    @click.option(
        "--token",
        metavar="TOKEN",
        envvar="DROPFLOW_TOKEN",
        show_envvar=True,
        help="Its token, which other users see unless it is in the environment. By default it is read on the manager's "
        "host, and elsewhere the cluster key signs requests.",
    )
    @click.option("--key", metavar="FILE", help="The cluster key; in the user's configuration by default.")
    @functools.wraps(function)
    def command(*arguments: Any, url: str | None, token: str | None, key: str | None, **given: Any) -> Exit:
        return function(*arguments, manager=ConnectionOptions(url=url, token=token, key=key), **given)

    return command


patience_option = click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=PATIENCE,
    show_default=True,
    metavar="SECONDS",
    envvar="DROPFLOW_PATIENCE",
    show_envvar=True,
    help="How long to keep asking while the manager is away or the state of the session is unknown.",
)

infrastructure_retries_option = click.option(
    "--infrastructure-retries",
    type=click.IntRange(min=0, max=1_000_000),
    default=5,
    show_default=True,
    metavar="N",
    help="How often an attempt of a drop is repeated because its worker process died; n_tries counts other failures.",
)

session_argument = click.argument("session", metavar="SESSION", shell_complete=sessions)

graph_argument = click.argument("graph", metavar="GRAPH", shell_complete=graphs)

GraphFormat = Literal["dfg", "json", "dot", "graphml", "csv"]


def setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that set parameters of a logical graph."""
    function = click.option(
        "--config", "configuration", metavar="NAME", help="Use the graph's configuration with this name or id."
    )(function)
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NODE.PARAM=VALUE",
        shell_complete=settings,
        help="Set a parameter of a node (by name or id). May be repeated.",
    )(function)


def _runner(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse a runner that there is not, before any file is read."""
    del context, parameter
    from dropflow.apps.runner_choice import parse_runner

    try:
        parse_runner(value)
    except BadParameterError as error:
        raise click.BadParameter(f"{error.text} ({error.hint})") from error
    return value


def runner_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about where the applications of a run on this machine are executed."""
    function = click.option(
        "--durable",
        is_flag=True,
        help="Force journal and files to the disk (fsync), so that resume works after a loss of power too; slower.",
    )(function)
    function = click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Number of threads or processes; one per core by default. Of a cluster that runs: attempts at a time.",
    )(function)
    function = infrastructure_retries_option(function)
    return click.option(
        "--runner",
        metavar="RUNNER",
        default="processes",
        show_default=True,
        callback=_runner,
        shell_complete=runners,
        help="Where applications run: inline (in this process one by one), threads, processes; dask or ray (started "
        "here), dask=ADDRESS or ray=ADDRESS (a cluster that runs); or PACKAGE.MODULE:FUNCTION, which makes a runner.",
    )(function)


prefix_option = click.option(
    "--prefix", default="", metavar="TEXT", help="First part of the drops' ids; the name of the graph by default."
)

target_option = click.option(
    "-o",
    "target",
    metavar="FILE",
    help="Write the graph to FILE; - is standard output. The suffix gives the format: .dfg, .json, .pg, .pgt, .dot, "
    ".graphml, or .csv: the drops, and their edges in FILE.edges.csv.",
)

form_option = click.option(
    "--format",
    "form",
    type=click.Choice(list(get_args(GraphFormat))),
    help="Format of the graph: .dfg, DALiuGE's JSON, or one that only other programs read: DOT, GraphML, CSV.",
)

fuse_option = click.option(
    "--no-fuse",
    is_flag=True,
    help="Give every application to a worker by itself; by default, chains without branches run as one unit.",
)

grace_option = click.option(
    "--grace",
    type=click.FloatRange(min=0, max=3600),
    default=GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long running applications have to clean up before they are killed.",
)
