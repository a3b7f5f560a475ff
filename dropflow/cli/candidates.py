"""Candidates for the completion of arguments in shells: graphs, runs, sessions, drops, nodes, algorithms.

A function for `shell_complete` of click never raises, prints nothing, and returns in time: a manager that does not
answer within `MANAGER_SECONDS`, or a graph that is not read within `FILE_SECONDS`, contributes no candidates.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, split_arg_string

from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.client import Client


MANAGER_SECONDS = 1.5
"""Seconds in which a manager must answer a completion, or it contributes no candidates."""
FILE_SECONDS = 5.0
"""Seconds that a completion may take, so that a shell never seems to hang."""

_GRAPHS = (".graph", ".dfg", ".json", ".pg", ".pgt", ".lg")
_MOST_CANDIDATES = 200
"""Candidates that are given to the shell."""
_RUNS = "dropflow-runs"
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _guarded(
    find: Callable[[click.Context, str], Iterable[str]], kind: str = "plain", seconds: float = MANAGER_SECONDS
) -> Complete:
    """Return a function for `shell_complete` of click, with the limits of this module."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        candidates: list[str] = []

        def collect() -> None:
            with suppress(Exception):
                candidates.extend(candidate for candidate in find(context, incomplete) if candidate.isprintable())

        worker = threading.Thread(target=collect, daemon=True, name="completion")
        worker.start()
        worker.join(seconds)
        return [CompletionItem(candidate, type=kind) for candidate in candidates[:_MOST_CANDIDATES]]

    return complete


def _graphs(_: click.Context, incomplete: str) -> Iterator[str]:
    """Yield files with the suffix of a graph, and directories."""
    folder, _slash, start = incomplete.rpartition("/")
    base = Path(folder or ("/" if incomplete.startswith("/") else "."))
    for path in sorted(base.expanduser().iterdir()):
        shown = f"{folder}{_slash}{path.name}"
        if not path.name.startswith(start) or (path.name.startswith(".") and not start):
            continue
        if path.is_dir():
            yield f"{shown}/"
        elif path.suffix.lower() in _GRAPHS:
            yield shown


def _sessions(context: click.Context, incomplete: str) -> Iterator[str]:
    with _client(context) as client:
        yield from (session.session for session in client.sessions() if session.session.startswith(incomplete))


def _runs(context: click.Context, incomplete: str) -> Iterator[str]:
    """Yield directories of runs below the present one, then sessions."""
    for base in (Path(), Path(_RUNS)):
        with suppress(OSError):
            directories = sorted(str(path.parent) for path in base.glob("*/journal.dfj"))
            yield from (directory for directory in directories if directory.startswith(incomplete))
    yield from _sessions(context, incomplete)


def _nodes(context: click.Context, incomplete: str) -> Iterator[str]:
    with _client(context) as client:
        yield from (node.name for node in client.nodes() if node.name.startswith(incomplete))


def _drops(context: click.Context, incomplete: str) -> Iterator[str]:
    """Yield ids of drops that begin with the text; if none does, those that contain it."""
    from dropflow.files import GRAPH_FILE

    run = str(context.params.get("session") or context.params.get("run") or "")
    if (Path(run) / GRAPH_FILE).is_file():
        from dropflow.graph.codec import load
        from dropflow.graph.text_ids import oids

        graph = load(Path(run) / GRAPH_FILE)
        known = list(oids(graph, range(min(graph.drops, 100_000))))
    else:
        from dropflow.api.drop_records import DropQuery

        with _client(context) as client:
            known = [drop.oid for drop in client.drops(run, DropQuery(text=incomplete)).drops]
    begun = [oid for oid in known if oid.startswith(incomplete)]
    yield from begun or (oid for oid in known if incomplete in oid)


def _algorithms(_: click.Context, incomplete: str) -> Iterator[str]:
    from translator.plan.registry import ALGORITHMS

    yield from (name for name in ALGORITHMS if name.startswith(incomplete))


def _runners(_: click.Context, incomplete: str) -> Iterator[str]:
    from dropflow.runners.runner_choice import RUNNERS

    yield from (name for name in RUNNERS if name.startswith(incomplete))


def _settings(_: click.Context, incomplete: str) -> Iterator[str]:
    """Yield the parameters of the graph on the command line, and those of its nodes."""
    from translator.formats import read_file, read_logical
    from translator.logical import NodeKind
    from translator.template import parameters_of

    # click does not parse the arguments of a line that ends with an option.
    words = [Path(word) for word in split_arg_string(os.environ.get("COMP_WORDS", ""))]
    path = next(candidate for candidate in words if candidate.suffix.lower() in _GRAPHS and candidate.is_file())
    graph = read_logical(read_file(path), name=path.stem).graph
    if graph is None:
        return
    names = [parameter.name for parameter in parameters_of(graph)]
    for node in graph.nodes:
        if node.kind not in (NodeKind.GLOBALS, NodeKind.NOTE):
            owner = node.app_name or node.name
            names += [
                f"{owner}.{field.name}" for field in node.fields if not field.is_port and field.name != "func_code"
            ]
    yield from (f"{name}=" for name in dict.fromkeys(names) if name.startswith(incomplete))


def _client(context: click.Context) -> "Client":
    """Return a client for the manager that the command line names, or the default one."""
    given: dict[str, Any] = {name: context.params.get(name) for name in ("url", "token", "key")}
    return ConnectionOptions(**given).connect(timeout=MANAGER_SECONDS / 2)


graphs = _guarded(_graphs, "graph", FILE_SECONDS)
sessions = _guarded(_sessions)
runs = _guarded(_runs)
nodes = _guarded(_nodes)
drops = _guarded(_drops)
algorithms = _guarded(_algorithms, seconds=FILE_SECONDS)
runners = _guarded(_runners, seconds=FILE_SECONDS)
settings = _guarded(_settings, seconds=FILE_SECONDS)
