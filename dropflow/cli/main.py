"""The ``dropflow`` command: the table of its commands, and the errors of the command line."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

import click

from dropflow.cli.exit_status import Exit
from dropflow.standard_output import reserve
from dropflow.version import __version__

__all__ = ["commands", "load_command", "main"]

_COMMANDS = {
    "run": "Run GRAPH on this machine.",
    "resume": "Continue RUN, which was killed, cancelled, or stopped at its walltime.",
    "retry": "Run the failed drops of RUN again, after their cause was corrected.",
    "check": "Report all problems of GRAPH.",
    "diff": "Show the differences of two logical graphs A and B in meaning.",
    "convert": "Write GRAPH, a logical graph of any family, in a current one.",
    "preview": "Show what GRAPH will become: drops, edges, volumes, critical path, parallelism over time.",
    "fill": "Fill the parameters of TEMPLATE, a logical graph, and write it.",
    "unroll": "Unroll GRAPH into a physical graph.",
    "partition": "Partition GRAPH and report how good the partition is.",
    "translate": "Translate GRAPH: fill its parameters, check, unroll, partition and, with --nodes, place it.",
    "schedule": "Simulate how GRAPH runs on nodes, and write the timeline.",
    "map": "Place GRAPH on nodes: part k of it on the k-th node.",
    "info": "Show what is in GRAPH: totals, and one line per logical node with the shape of its index space.",
    "explain": "Explain the state of DROP in RUN, the directory of a run or a session of a manager.",
    "profile": "Show what the attempts of a run took: times, processor time, memory and bytes, by logical node.",
    "times": "Show how long attempts of RUN waited and ran, by logical node, and its critical path as executed.",
    "timeline": "Write when the attempts of RUN ran, on which worker: as a trace for Perfetto, or as a picture.",
    "report": "Write a report of RUN as one HTML file: graph, timeline, failures, times, parameters and versions.",
    "compare": "Show what differs between two sessions: graph, parameters, versions, plan, drops, times and failures.",
    "provenance": "Show what RUN computed, as a signature, or what DROP of it was made from.",
    "submit": "Run GRAPH on the nodes of a manager.",
    "clone": "Run the graph of SESSION again, in a new session, with other values and options.",
    "open": "Print an address that signs a browser in, and opens SESSION or the first page.",
    "sessions": "List the sessions of a manager, the youngest first.",
    "status": "Show SESSION as it is now: progress by logical node, and why drops failed.",
    "watch": "Follow SESSION live until it is over, and report how it ended.",
    "log": "Print what drops of SESSION wrote to their logs, in the order of time, or the log of one DROP as it is.",
    "fetch": "Copy the results of SESSION here, or the content of one DROP of it.",
    "cancel": "Stop SESSION: drops that are not settled become CANCELLED.",
    "pause": "Start nothing more of SESSION.",
    "continue": "Continue SESSION after 'dropflow pause'.",
    "rebalance": "Move what has not begun of SESSION, so that all its nodes end at about the same time.",
    "force-continue": "Have the nodes of SESSION that are left go on without a majority.",
    "delete": "Remove SESSION and all of its files, also its results.",
    "drain": "Have NODE give its sessions to their other nodes, and end.",
    "nodes": "List the nodes at or below a manager, with their load.",
    "doctor": "Check a manager, all managers below it, and the network between them.",
    "up": "Run a translator, a master, an island and nodes on this host, until SIGINT or SIGTERM.",
    "node": "Run the node manager of this host, until SIGINT or SIGTERM.",
    "island": "Run a data island manager over nodes, until SIGINT or SIGTERM.",
    "master": "Run a master manager over islands, until SIGINT or SIGTERM.",
    "daemon": "Run the daemon of this host, which starts and stops its other managers, until SIGINT or SIGTERM.",
    "translator": "Run the translator service for EAGLE, until SIGINT or SIGTERM.",
    "keys": "The cluster key, which all managers of a cluster share.",
    "palette": "Palettes of components for EAGLE.",
    "completion": "Print a script that completes commands in SHELL.",
    "version": "Print the versions of dropflow, Python and the libraries.",
}
"""The first sentence of the help of each command."""

_MODULES = {
    "run": ("run", "resume", "retry"),
    "graphs": ("check", "convert", "preview", "fill"),
    "info": ("diff", "info"),
    "unroll": ("unroll",),
    "plan": ("partition", "translate", "schedule", "map"),
    "explain": ("explain",),
    "profile": ("profile",),
    "times": ("times", "timeline"),
    "looking": ("report", "compare", "provenance"),
    "submit": ("submit", "clone"),
    "nodes": ("open", "nodes"),
    "sessions": ("sessions", "drain"),
    "cancel": ("status", "cancel", "pause", "continue", "rebalance", "force-continue", "delete"),
    "watch": ("watch",),
    "log": ("log",),
    "fetch": ("fetch",),
    "doctor": ("doctor",),
    "up": ("up",),
    "servers": ("node", "island", "master", "daemon", "translator"),
    "misc": ("keys", "palette", "completion", "version"),
}
"""The commands of each module, where the command ``run`` is ``run_command``. A module is imported when its command
runs."""

_MODULE_OF = {command: module for module, commands in _MODULES.items() for command in commands}

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def load_command(name: str) -> click.Command:
    """Import the module of a command and return the command."""
    module = import_module(f"dropflow.cli.{_MODULE_OF[name]}")
    command: click.Command = getattr(module, f"{name.replace('-', '_')}_command")
    return command


class _Commands(click.Group):
    """A group that lists commands without importing their modules."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name and the command that `args` begin with, and the other arguments."""
        name, listed, others = super().resolve_command(ctx, args)
        command = None if name is None or listed is None else load_command(name)
        return name, command, others


@click.group(
    "dropflow",
    cls=_Commands,
    commands={name: click.Command(name, help=summary) for name, summary in _COMMANDS.items()},
    context_settings=_SETTINGS,
)
@click.version_option(__version__, "-V", "--version", message="%(version)s")
@click.pass_obj
def commands(begin: Callable[[], None] | None) -> None:
    """Run dataflow graphs: logical graphs drawn in EAGLE, physical graphs in DALiuGE's JSON, and .dfg files.

    GRAPH is a file, or - for standard input. Standard output carries the answer and nothing else, so that commands
    pipe; everything else goes to standard error. Exit status: 0 done, 1 the run failed, 2 bad input, 3 a
    manager cannot be reached or the state of a session cannot be known, 4 a run was stopped at its walltime,
    5 no manager was named and none runs on this host, 130 interrupted.

    On one machine, run is all that is needed. On several, start node, island and master on their hosts (or up, for all
    of them on this host), and submit graphs to them.
    """
    if begin is not None:  # the module of the command is imported now
        begin()


def main(arguments: Sequence[str] | None = None, *, begin: Callable[[], None] | None = None) -> NoReturn:
    """Run the command with `arguments` and exit.

    Without arguments those of the process are used, and its standard output is reserved for the answer. `begin` is
    called before the command runs, when its module is imported.
    """
    if arguments is None:
        reserve()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        commands.main(args=given, prog_name="dropflow", standalone_mode=False, obj=begin)
        sys.stdout.flush()
    except click.UsageError as error:
        _print_usage_error(error, given)
        sys.exit(Exit.BAD_INPUT)
    except click.ClickException as error:
        error.show()
        sys.exit(Exit.BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        sys.exit(Exit.INTERRUPTED)
    sys.exit(Exit.FINISHED)


def _print_usage_error(error: click.UsageError, given: Sequence[str]) -> None:
    """Print what is wrong with the command line; also as JSON if that is the form of output."""
    error.show()
    wanted = [*given, f"--output={os.environ.get('DROPFLOW_OUTPUT', '')}"]
    pairs = zip(wanted, [*wanted[1:], ""], strict=True)
    if "--output=json" in wanted or ("--output", "json") in pairs:
        from dropflow.cli.error_reply import ErrorReply, ErrorText
        from dropflow.cli.output import JsonOutput
        from dropflow.errors import UsageError

        text = ErrorText(code=UsageError.code, kind=type(error).__name__, text=error.format_message())
        JsonOutput().error(ErrorReply(error=text))
