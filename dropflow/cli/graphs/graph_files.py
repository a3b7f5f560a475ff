"""Read GRAPH of a command line and write physical graphs; ``-`` is standard input or standard output."""

import io
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import msgspec

from dropflow.cli.common_options import GraphFormat
from dropflow.cli.output import CommandOutput, graph_problems, output_file, problem_lines
from dropflow.errors import DropflowError, UsageError
from dropflow.failure import Problem, Severity
from dropflow.files import behind_link
from dropflow.formatting import plural
from dropflow.graph.codec import dump, save
from dropflow.graph.physical import PhysicalGraph
from translator.options import ComponentOptions, ReadOptions, UnrollOptions
from translator.pipeline import Checked, Translation, examine, finish
from translator.repository import RepositoryFile, fetch_file, is_repository_address

if TYPE_CHECKING:
    from dropflow.graph.exports import Writer

_SHOWN_WARNINGS = 8
"""Warnings about a graph that are printed."""
_FORMATS: dict[str, GraphFormat] = {
    ".dfg": "dfg",
    ".json": "json",
    ".pg": "json",
    ".pgt": "json",
    ".dot": "dot",
    ".graphml": "graphml",
    ".csv": "csv",
}
_EDGES = ".edges.csv"
_FOR_ANY_HOST = ComponentOptions()


def examine_graph(
    source: str,
    *,
    configuration: str | None = None,
    settings: tuple[str, ...] = (),
    prefix: str = "",
    components: ComponentOptions | None = _FOR_ANY_HOST,
) -> Checked:
    """Return the graph in the file `source`, or at its address in a repository, with all problems of it.

    A component that cannot run on this host is a warning or an error, depending on `components`; None skips the check.

    Raises
    ------
    BadFileError
        It cannot be read, or is damaged.
    """
    given: Path | bytes | RepositoryFile = Path(source)
    if source == "-":
        given = read_standard_input()
    elif is_repository_address(source):
        given = fetch_file(source)
    return examine(
        given,
        name="stdin" if source == "-" else None,
        unroll_options=UnrollOptions(prefix=prefix),
        configuration=configuration,
        settings=settings,
        component_options=components,
    )


def read_document(file: str) -> tuple[str, bytes]:
    """Return the name of a graph, and what is in its file."""
    from translator.formats.json_document import read_file

    if is_repository_address(file):
        fetched = fetch_file(file)
        return fetched.name, fetched.content
    return ("stdin", read_standard_input()) if file == "-" else (Path(file).stem, read_file(Path(file)))


def read_standard_input() -> bytes:
    """Return the graph on standard input.

    Raises
    ------
    UsageError
        It is closed.
    """
    if sys.stdin is None:
        raise UsageError("standard input is closed", where="-", hint="name a file, or pipe the graph in")
    # One byte beyond the limit is enough for the reader to refuse it.
    return sys.stdin.buffer.read(ReadOptions().max_bytes + 1)


def read_graph(
    source: str,
    *,
    configuration: str | None = None,
    settings: tuple[str, ...] = (),
    prefix: str = "",
    components: ComponentOptions | None = _FOR_ANY_HOST,
) -> Translation:
    """Return the physical graph of the file `source`; see `examine_graph`.

    Raises
    ------
    BadFileError
        It cannot be read, or is damaged.
    BadGraphError
        It cannot be translated; carries all problems.
    """
    examined = examine_graph(
        source, configuration=configuration, settings=settings, prefix=prefix, components=components
    )
    return finish(examined)


def read_for_nodes(
    output: CommandOutput, source: str, configuration: str | None, settings: tuple[str, ...]
) -> PhysicalGraph:
    """Return the graph in a file. Components are not looked for here: the nodes report what they lack."""
    reading = read_graph(source, configuration=configuration, settings=settings, components=None)
    note_warnings(output, reading.problems)
    return reading.graph


def note_warnings(output: CommandOutput, problems: tuple[Problem, ...]) -> None:
    """Print the warnings of a graph that is used nevertheless."""
    warnings = [problem for problem in problems if problem.severity is Severity.WARNING]
    for line in problem_lines(warnings[:_SHOWN_WARNINGS]):
        output.note(line)
    if len(warnings) > _SHOWN_WARNINGS:
        output.note(f"... and {plural(len(warnings) - _SHOWN_WARNINGS, 'more warning')}: see dropflow check")


def as_problems(error: DropflowError) -> tuple[Problem, ...]:
    """Return the problems that an error carries, or the error itself as the only problem."""
    only = Problem(code=error.code, severity=Severity.ERROR, where=error.where, text=error.text, hint=error.hint)
    return graph_problems(error) or (only,)


class GraphTarget(msgspec.Struct, frozen=True):
    """The place where a physical graph is written: a file or ``-``, and its format."""

    path: str
    form: GraphFormat

    @property
    def is_standard_output(self) -> bool:
        """Whether the graph takes the place of the answer."""
        return self.path == "-"

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are written; the edges of a table of drops are in another one."""
        path = Path(self.path)
        return (path, path.with_suffix(_EDGES)) if self.form == "csv" else (path,)

    def write(self, graph: PhysicalGraph) -> None:
        """Write `graph`, a file whole or not at all.

        Raises
        ------
        UsageError
            A terminal would get the bytes of a ``.dfg`` file.
        """
        if self.is_standard_output:
            self._write_out(graph)
        elif self.form == "dfg":
            save(graph, behind_link(Path(self.path)))
        else:
            self._write_texts(graph)

    def _write_texts(self, graph: PhysicalGraph) -> None:
        with ExitStack() as stack:
            for path, writer in zip(self.files, self.writers(), strict=True):
                writer(graph, stack.enter_context(output_file(path)))

    def writers(self) -> "tuple[Writer, ...]":
        """Return what writes each of the files of a text format."""
        from dropflow.graph.daliuge_write import write_pg
        from dropflow.graph.exports import WRITERS

        if self.form == "csv":
            return WRITERS["csv"], WRITERS["edges.csv"]
        return (write_pg if self.form == "json" else WRITERS[self.form],)

    def _write_out(self, graph: PhysicalGraph) -> None:
        if self.form != "dfg":
            for writer in self.writers():
                writer(graph, sys.stdout.buffer)
        elif sys.stdout.isatty():
            hint = "write it to a file with -o, or use --format json"
            raise UsageError("a terminal cannot show a .dfg file", hint=hint)
        else:
            for buffer in dump(graph):
                sys.stdout.buffer.write(buffer)
        sys.stdout.buffer.flush()


def graph_for_answer(graph: PhysicalGraph, form: GraphFormat | None) -> msgspec.Raw | str:
    """Return a graph as a value in an answer in JSON: the list of its drops, or the text of another format.

    Raises
    ------
    UsageError
        The format is not a text.
    """
    if form == "dfg":
        hint = "write it to a file with -o, or use -o - to get it without the answer"
        raise UsageError("a .dfg file is not a text, and cannot be in an answer in JSON", hint=hint)
    stream = io.BytesIO()
    for writer in GraphTarget("-", form or "json").writers():
        writer(graph, stream)
    written = stream.getvalue()
    return msgspec.Raw(msgspec.json.format(written, indent=-1)) if form in (None, "json") else written.decode()


def graph_target(path: str, form: GraphFormat | None) -> GraphTarget:
    """Return where to write a graph: in the format `form`, else that of the suffix; standard output gets JSON.

    Called before the translation, so that a mistake does not cost the time of a translation.

    Raises
    ------
    UsageError
        A graph cannot be written there, or the suffix is unknown and no format is given.
    """
    if path == "-":
        if form == "csv":
            hint = "name a file with -o: the edges are written to another one beside it"
            raise UsageError("CSV is two tables, and standard output takes one", hint=hint)
        return GraphTarget(path, form or "json")
    file = Path(path)
    if not file.parent.is_dir():
        raise UsageError("no such directory", where=str(file.parent), hint="make it, or name another file")
    suffix = file.suffix.lower()
    if form is None and suffix not in _FORMATS:
        raise UsageError(
            f"{suffix!r} is not the suffix of a graph" if suffix else "the name of the file has no suffix",
            where=path,
            hint=f"use {', '.join(_FORMATS)}, or any name with --format {', '.join(dict.fromkeys(_FORMATS.values()))}",
        )
    target = GraphTarget(path, form or _FORMATS[suffix])
    for target_file in target.files:
        if target_file.exists() and not target_file.is_file():
            raise UsageError("not a regular file", where=str(target_file), hint="name a file for -o")
    return target


class GraphCounts(TypedDict):
    """Sizes of a physical graph; `edges` counts pairs of drops, `connections` pairs of their ports."""

    drops: int
    data_drops: int
    app_drops: int
    edges: int
    connections: int


def count_drops(graph: PhysicalGraph) -> GraphCounts:
    """Return the sizes of `graph`."""
    apps = int(graph.kinds[graph.template].sum(dtype="int64")) if graph.drops else 0
    return GraphCounts(
        drops=graph.drops,
        data_drops=graph.drops - apps,
        app_drops=apps,
        edges=graph.joined_pairs,
        connections=graph.edges,
    )
