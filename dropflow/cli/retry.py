"""``dropflow retry``: try failed drops of a run, or of a session of a manager, again, or run it again from a drop."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dropflow.cli.candidates import drops, runs
from dropflow.cli.common_options import (
    GivenOptions,
    connection_options,
    grace_option,
    options_of,
    output_options,
    patience_option,
    utf8,
)
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.run import CancelOnSignal, RunReply, exit_of_run
from dropflow.cli.run_or_session import continue_session, continues_directory, manager_session_options
from dropflow.errors import UsageError
from dropflow.formatting import plural
from dropflow.session_options import RunOptions
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.api.session_records import SessionInfo
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.graph.templates import Template


@click.command("retry")
@output_options
@click.argument("run", metavar="RUN", shell_complete=runs)
@click.argument("drops", metavar="[DROP]...", nargs=-1, shell_complete=drops)
@connection_options
@manager_session_options
@patience_option
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="DROP",
    shell_complete=drops,
    help="Run this drop again and all that depends on it, whatever their outcome was. May be repeated.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    callback=utf8,
    metavar="[NODE.]PARAM=VALUE",
    help="Set a parameter of the nodes that failed, or are named with --from, for all of their drops that run from now "
    "on. May be repeated.",
)
@click.option(
    "--new-code",
    "sources",
    multiple=True,
    metavar="FILE",
    help="Take the functions of the graph as FILE has them now: a Python file, or the "
    "graph. If no drop failed, those that differ run again. May be repeated.",
)
@options_of(RunOptions, without=("until",))
@grace_option
def retry_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    run: str,
    drops: tuple[str, ...],
    start: tuple[str, ...],
    settings: tuple[str, ...],
    sources: tuple[str, ...],
    wait: bool,
    patience: float,
    without_missing: bool,
    options: GivenOptions[RunOptions],
    grace: float,
) -> Exit:
    """Run the failed drops of RUN again, after their cause was corrected.

    RUN is the directory of a run that has ended, or a session of a manager if there is no such directory, or with --to.
    The session may still run, unless parameters are set.

    These are all root causes, or those of each DROP (a text id as reports show it, or the end of one), and the drops
    that failed or were cancelled because of them. Drops that were completed are kept, if their contents are still there
    or not needed. Failed drops have all of their tries again. The answer is that of run, or for a session of a manager
    that of submit.

    Functions whose code is in the graph run with the code that the run began with, also if their source was edited
    since: --new-code takes the new code, for drops that run from now on. A note lists what is new in each function. If
    no drop failed, the functions that differ run again, and all that depends on them. Modules that functions import are
    always those that are there now.

    With --from, these drops run again and all that depends on them, also if they were completed; all others stay as
    they are. DROP is a text id, the end of one, or the name of a logical node, for all of its drops. A data drop is
    written again by its producers. Inputs whose contents are gone are made again. The session must be over.
    """
    if start and drops:
        raise UsageError(
            f"DROP ({', '.join(drops)}) and --from cannot be given together",
            hint="DROP names drops that failed; name all from which the run starts again with --from",
        )
    if not continues_directory(run):
        from dropflow.api.requests import RetryRequest

        def again(client: "Client") -> "SessionInfo":
            code = _new_code(client.graph(run), sources, output) if sources else {}
            info = client.retry(
                run,
                RetryRequest(drops=drops, start=start, settings=settings, code=code, without_missing=without_missing),
            )
            _note_unused(code, client.graph(run) if code else None, output)
            return info

        return continue_session(output, manager, again, wait=wait, patience=patience)

    from dropflow.files import GRAPH_FILE
    from dropflow.graph.codec import load
    from dropflow.sessions.local_run import RunHooks, retry
    from dropflow.submission.progress import session_progress

    kept = Path(run, GRAPH_FILE)
    graph = load(kept) if kept.exists() else None
    code: Mapping[str, str] = {}
    if graph is not None and sources:
        code = _new_code(graph, sources, output)
    elif graph is not None and any(app.value("func_code") for app in graph.templates):
        output.note(
            "functions in the graph have the code that the run began with; for code that was edited since, "
            "name its file with --new-code FILE"
        )
    with CancelOnSignal(grace) as signals, session_progress(quiet=output.kind is OutputKind.QUIET) as show:
        hooks = RunHooks(on_preparing=output.note, on_session=signals.watch, on_statistics=show)
        result = retry(Path(run), drops, options.options, hooks=hooks, start=start, settings=settings, code=code)
    _note_unused(code, load(kept) if code else None, output)
    output.answer(RunReply.of(result))
    return exit_of_run(result.status, signals.last)


def _new_code(graph: "PhysicalGraph", sources: Sequence[str], output: CommandOutput) -> dict[str, str]:
    """Return the sources of functions that differ in files from those in a graph, by the key of their node."""
    from dropflow.reuse.code import first_changed_line, is_same_code

    functions = {app.key: app for app in graph.templates if app.value("func_code")}
    sources_of: dict[str, str] = {}
    for source in sources:
        sources_of |= _code_in(source, functions)
    if not sources_of:
        names = ", ".join(str(app.value("func_name")) for app in functions.values())
        raise UsageError(
            f"no function of the graph is in {', '.join(sources)}",
            where="--new-code",
            hint=f"its functions are {names}" if names else "the graph has the code of no function",
        )
    changed = {
        key: code for key, code in sources_of.items() if not is_same_code(functions[key].value("func_code"), code)
    }
    for key, code in changed.items():
        line = first_changed_line(functions[key].value("func_code"), code)
        output.note(f"{functions[key].name} has new code{f': {line[1]}' if line is not None and line[1] else ''}")
    if not changed:
        output.note(f"{plural(len(sources_of), 'function')} of the graph: none differs from {', '.join(sources)}")
    return changed


def _code_in(source: str, functions: "Mapping[str, Template]") -> dict[str, str]:
    """Return the sources that a Python file or a graph has for functions of a graph, by their key."""
    from dropflow.builder.functions import code_in
    from dropflow.cli.graphs.graph_files import read_graph

    if Path(source).suffix == ".py":
        path = Path(source).absolute()
        codes = {key: code_in(path, str(app.value("func_name"))) for key, app in functions.items()}
    else:
        templates = read_graph(source).graph.templates
        codes = {app.key: str(app.value("func_code") or "") for app in templates if app.key in functions}
    return {key: code for key, code in codes.items() if code}


def _note_unused(code: Mapping[str, str], graph: "PhysicalGraph | None", output: CommandOutput) -> None:
    """Tell which functions keep the code that they had, because nothing of them runs."""
    kept = [
        app
        for app in (graph.templates if graph is not None else ())
        if code.get(app.key, "") not in ("", app.value("func_code"))
    ]
    for app in kept:
        output.note(f"{app.name} keeps its code, because its results stay: run it again with --from '{app.name}'")
