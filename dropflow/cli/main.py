"""The ``dropflow`` command: its group, and the last line of defence around it."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from dropflow import __version__
from dropflow.cli.check import check
from dropflow.cli.composite import island, master
from dropflow.cli.doctor import doctor
from dropflow.cli.exits import Exit
from dropflow.cli.explain import explain
from dropflow.cli.fetch import fetch, log
from dropflow.cli.info import info
from dropflow.cli.keys import keys
from dropflow.cli.node import node
from dropflow.cli.nodes import nodes
from dropflow.cli.palette import palette
from dropflow.cli.partition import map_command, partition
from dropflow.cli.run import run
from dropflow.cli.services import daemon, translator
from dropflow.cli.sessions import cancel, delete, sessions, status, watch
from dropflow.cli.submit import submit
from dropflow.cli.unroll import unroll
from dropflow.cli.up import up
from dropflow.cli.version import version
from dropflow.standard_output import reserve

__all__ = ["commands", "main"]

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("dropflow", context_settings=_SETTINGS)
@click.version_option(__version__, "-V", "--version", message="%(version)s")
def commands() -> None:
    """Run dataflow graphs: logical graphs drawn in EAGLE, physical graphs in DALiuGE's JSON, and .dfg files.

    GRAPH is a file, or - for standard input. Standard output carries the answer and nothing else, so that commands
    pipe; everything else goes to standard error. Exit status: 0 done, 1 the run failed, 2 bad input, 3 a
    manager cannot be reached or how a session is cannot be known, 130 interrupted.

    One machine needs no more than run. For several, start node, island and master on their hosts (or up, for all of
    them on this one), and submit graphs to them.
    """


_COMMANDS = (
    *(run, check, unroll, partition, map_command, info, explain),
    *(submit, sessions, status, watch, log, fetch, cancel, delete, nodes, doctor),
    *(up, node, island, master, daemon, translator, keys),
    *(palette, version),
)

for _command in _COMMANDS:
    commands.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with `arguments` and exit; without them the process is the command, and its output reserved."""
    if arguments is None:
        reserve()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        commands.main(args=given, prog_name="dropflow", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        _refuse_usage(error, given)
        sys.exit(Exit.BAD_INPUT)
    except click.ClickException as error:
        error.show()
        sys.exit(Exit.BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        sys.exit(Exit.INTERRUPTED)
    sys.exit(Exit.FINISHED)


def _refuse_usage(error: click.UsageError, given: Sequence[str]) -> None:
    """Say what is wrong with the command line; as JSON, too, where JSON was asked for."""
    error.show()
    wanted = [*given, f"--output={os.environ.get('DROPFLOW_OUTPUT', '')}"]
    pairs = zip(wanted, [*wanted[1:], ""], strict=True)
    if "--output=json" in wanted or ("--output", "json") in pairs:
        from dropflow.cli.output import JsonOutput
        from dropflow.cli.refusal import ErrorText, Refusal

        text = ErrorText(code="DF100", kind=type(error).__name__, text=error.format_message())
        JsonOutput().refuse(Refusal(error=text))
