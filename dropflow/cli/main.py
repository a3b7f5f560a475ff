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

_GROUPS = {
    "Every day": {
        "run": "Run GRAPH on this machine.",
        "check": "Report all problems of GRAPH.",
        "up": "Run a translator, a master, an island and nodes on this host, until SIGINT or SIGTERM.",
        "submit": "Run GRAPH on the nodes of a manager.",
        "watch": "Follow SESSION live until it is over, and report how it ended, or show it --once.",
    },
    "Graphs": {
        "fill": "Fill the parameters of TEMPLATE, a logical graph, and write it.",
        "info": "Show what is in GRAPH: totals, and one line per logical node with the shape of its index space.",
        "diff": "Show what differs between A and B: two logical graphs, or two runs or sessions.",
        "translate": "Translate GRAPH: fill its parameters, check, unroll, partition and, with --nodes, place it.",
        "unroll": "Unroll GRAPH into a physical graph.",
        "partition": "Partition GRAPH and report how good the partition is.",
        "map": "Place GRAPH on nodes: part k of it on the k-th node.",
        "schedule": "Simulate how GRAPH runs on nodes, and write the timeline.",
        "drill": "Simulate how GRAPH, or the graph of a run, ends on nodes that fail.",
        "palette": "Palettes of components for EAGLE.",
    },
    "Sessions": {
        "sessions": "List the sessions of a manager, the youngest first.",
        "resume": "Continue RUN, which was paused, killed, cancelled, switched off, or stopped at its walltime.",
        "retry": "Run the failed drops of RUN again, after their cause was corrected.",
        "pause": "Start nothing more of SESSION.",
        "cancel": "Stop SESSION: drops that are not settled become CANCELLED.",
        "rebalance": "Move drops of SESSION that have not begun, so that all its nodes end at about the same time.",
        "log": "Print what drops of RUN wrote to their logs, in the order of time, or the log of one DROP.",
        "fetch": "Copy the results of SESSION here, or the content of one DROP of it.",
        "delete": "Remove SESSION and all of its files, also its results.",
    },
    "Understand": {
        "explain": "Explain the state of DROP in RUN, the directory of a run or a session of a manager.",
        "replay": "Run the application DROP of RUN once more, outside of RUN, with the inputs that it had.",
        "cache": "The result store, which 'dropflow run --reuse' takes from and adds to.",
        "times": "Show how long attempts of RUN waited and ran, by logical node, and its critical path as executed.",
        "open": "Print an address that signs a browser in, and opens SESSION or the first page.",
    },
    "Cluster": {
        "node": "Run the node manager of this host, until SIGINT or SIGTERM.",
        "island": "Run a data island manager over nodes, until SIGINT or SIGTERM.",
        "master": "Run a master manager over islands, until SIGINT or SIGTERM.",
        "daemon": "Run the daemon of this host, which starts and stops its other managers, until SIGINT or SIGTERM.",
        "translator": "Run the translator service for EAGLE, until SIGINT or SIGTERM.",
        "launch": "Run GRAPH on hosts of a batch system or over ssh, or start a cluster there.",
        "pool": "Nodes that an island gets from a batch system while work waits for them.",
        "down": "End the cluster that dropflow up or dropflow launch ssh has started on this host.",
        "service": "Managers as services of systemd, which start with this host.",
        "nodes": "List the nodes at or below a manager, with their load.",
        "drain": "Tell NODE to give its sessions to their other nodes, and to end.",
        "doctor": "Check a manager, all managers below it, and the network between them.",
        "keys": "The cluster key, which all managers of a cluster share, and the keys of users.",
    },
    "Shell": {
        "completion": "Print a script that completes commands in SHELL.",
    },
}
"""The commands below the headings of ``dropflow --help``, with the first sentence of the help of each."""

_MODULES = {
    "run": ("run", "resume"),
    "retry": ("retry",),
    "graphs.check": ("check",),
    "graphs.fill": ("fill",),
    "graphs.info": ("info",),
    "graphs.diff": ("diff",),
    "graphs.plan": ("translate", "unroll", "partition", "map", "schedule"),
    "graphs.drill": ("drill",),
    "understand.explain": ("explain",),
    "understand.replay": ("replay",),
    "understand.times": ("times",),
    "sessions.submit": ("submit",),
    "open": ("open",),
    "nodes": ("nodes",),
    "sessions.control": ("sessions", "pause", "cancel", "rebalance", "delete", "drain"),
    "sessions.watch": ("watch",),
    "sessions.log": ("log",),
    "sessions.fetch": ("fetch",),
    "doctor": ("doctor",),
    "servers.up": ("up", "down"),
    "jobs.launch": ("launch",),
    "jobs.pool": ("pool",),
    "servers.service": ("service",),
    "servers.roles": ("node", "island", "master", "daemon", "translator"),
    "keys": ("keys",),
    "graphs.palette": ("palette",),
    "understand.cache": ("cache",),
    "completion": ("completion",),
}
"""The commands of each module, where the command ``run`` is ``run_command``. A module is imported when its command
runs."""

_MODULE_OF = {command: module for module, commands in _MODULES.items() for command in commands}

_LIBRARIES = (
    *("bottle", "click", "cloudpickle", "jsonschema", "msgspec", "numpy", "psutil", "pymetis", "pyzmq", "rich"),
    *("rustworkx", "waitress", "zeroconf"),
)
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def load_command(name: str) -> click.Command:
    """Import the module of a command and return the command."""
    module = import_module(f"dropflow.cli.{_MODULE_OF[name]}")
    command: click.Command = getattr(module, f"{name}_command")
    return command


class _Commands(click.Group):
    """A group that lists commands below headings, without importing their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading."""
        del ctx
        limit = formatter.width - 6 - max(map(len, self.commands))
        for heading, listed in _GROUPS.items():
            rows = [(name, self.commands[name].get_short_help_str(limit)) for name in listed]
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=max(map(len, self.commands)))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name and the command that `args` begin with, and the other arguments."""
        name, listed, others = super().resolve_command(ctx, args)
        command = None if name is None or listed is None else load_command(name)
        return name, command, others


def _print_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:  # noqa: FBT001
    """Print the versions of dropflow, Python and the libraries."""
    if not is_wanted or context.resilient_parsing:
        return
    import platform
    from importlib import metadata

    click.echo(f"dropflow {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in _LIBRARIES:
        click.echo(f"  {name:<10}  {metadata.version(name)}")
    context.exit()


@click.group(
    "dropflow",
    cls=_Commands,
    commands={name: click.Command(name, help=text) for listed in _GROUPS.values() for name, text in listed.items()},
    context_settings=_SETTINGS,
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the versions of dropflow, Python and the libraries, and end.",
)
@click.pass_obj
def commands(begin: Callable[[], None] | None) -> None:
    """Run dataflow graphs: logical graphs drawn in EAGLE, physical graphs in DALiuGE's JSON, and .dfg files.

    GRAPH is a file, or - for standard input. Standard output carries the answer and nothing else, so that commands
    pipe; everything else goes to standard error. Exit status: 0 done, 1 the run failed, 2 bad input, 3 a manager cannot
    be reached or the state of a session cannot be known, 4 a run was stopped at its walltime, 5 no manager was named
    and none runs on this host, 70 an error of dropflow itself; 130 interrupted by Ctrl-C, 143 ended by SIGTERM, 141 the
    reader of the output has gone.

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
    except OSError as caught:  # help or versions cannot be printed: a command prints its errors itself
        from dropflow.cli.common_options import error_of_unwritten
        from dropflow.cli.output import CommandOutput, error_reply, exit_for_error

        failed = error_of_unwritten(caught)
        CommandOutput().error(error_reply(failed))
        sys.exit(exit_for_error(failed))
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
        from dropflow.cli.output import ErrorReply, ErrorText, JsonOutput
        from dropflow.errors import UsageError

        text = ErrorText(code=UsageError.code, kind=type(error).__name__, text=error.format_message())
        JsonOutput().error(ErrorReply(error=text))
