"""Options that several commands share, and the frame around every command: its output, its errors, its exit status."""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from dropflow.cli.exits import Exit

__all__ = [
    "elsewhere_option",
    "form_option",
    "graph_argument",
    "prefix_option",
    "setting_options",
    "speaks",
    "target_option",
]

graph_argument = click.argument("graph", metavar="GRAPH")


def setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that fill in the parameters of a logical graph."""
    function = click.option(
        "--config", "configuration", metavar="NAME", help="Use the graph's configuration with this name or id."
    )(function)
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NODE.PARAM=VALUE",
        help="Give a parameter of a node (by name or id) another value. May be repeated.",
    )(function)


prefix_option = click.option(
    "--prefix", default="", metavar="TEXT", help="First part of the drops' ids; the name of the graph by default."
)

target_option = click.option(
    "-o",
    "target",
    metavar="FILE",
    help="Write the graph to FILE; - is standard output. The suffix says the format: .dfg, .json, .pg or .pgt.",
)

elsewhere_option = click.option(
    "--elsewhere",
    is_flag=True,
    help="GRAPH is for other hosts: a module or variable that only this host lacks is a warning.",
)

form_option = click.option(
    "--format", "form", type=click.Choice(["dfg", "json"]), help="Format of the graph: .dfg, or DALiuGE's JSON."
)


def speaks(function: Callable[..., Exit]) -> Callable[..., None]:
    """Make `function` a command that answers through an `Output` and never with a traceback.

    The function gets the output as its first argument and answers the exit status. What it raises becomes a refusal
    in the same form as its answers.
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
        from dropflow.cli.output import output_for
        from dropflow.cli.refusal import exit_for, refusal_for

        output = output_for(kind)
        try:
            status = function(output, **options)
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit):
            raise
        except BrokenPipeError:
            # The reader of our output went away (`dropflow info g.dfg | head`); nobody is left to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = Exit.BROKEN_PIPE
        except Exception as error:  # noqa: BLE001  (the last door: everything becomes a refusal)
            output.refuse(refusal_for(error, debug=debug))
            status = exit_for(error)
        sys.exit(status)

    return command
