"""``dropflow replay``: one attempt again on this machine, with the inputs that it had, also under a debugger."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dropflow.cli.candidates import drops, runs
from dropflow.cli.common_options import connection_options, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.run_or_session import is_run_directory
from dropflow.errors import ConflictError, MissingDependencyError, UsageError, install_hint
from dropflow.formatting import format_size, plural
from dropflow.ids import drop_file_name, safe_name
from dropflow.states import DropState, SessionState
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    import pdb  # noqa: T100 - people debug with it

    from dropflow.api.client import Client
    from dropflow.apps.app_interface import App
    from dropflow.apps.attempt import AttemptContext
    from dropflow.execution.content_location import Handle
    from dropflow.execution.statistics import FailureReport, SessionResult
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.runners.executor import RunApp
    from dropflow.sessions.replay import Contents, Replay

_EXPORTED_BYTES = 1 << 30
"""Bytes of inputs that ``--export`` copies at most, by default."""
_DEBUGGER_PORT = 5678
"""TCP port on which the debugger waits, if it is free: the default of debugpy and of editors."""


class ReplayedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """An output of a replayed application; `same` is None if the content of the session is not known."""

    drop: str
    path: str
    size: int
    same: bool | None = None


class ReplayReply(msgspec.Struct, frozen=True, kw_only=True):
    """How an application ended that was replayed."""

    ok: bool
    drop: str
    state: str
    inputs: tuple[str, ...]
    made_again: int
    outputs: tuple[ReplayedOutput, ...]
    failures: "tuple[FailureReport, ...]" = ()
    log: str = ""
    output: str
    hints: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the drop, what it read, what it printed, and what it wrote or why it failed."""
        yield f"{self.drop}: {self.state}"
        yield from (f"  read {source}" for source in self.inputs)
        if self.made_again:
            yield f"  {plural(self.made_again, 'application')} ran before it, because inputs were gone"
        yield from (f"  | {line}" for line in self.log.splitlines())
        for output in self.outputs:
            same = {None: "", True: ", the same bytes as in the session", False: ", other bytes than in the session"}
            path = f", {output.path}" if output.path else ""
            yield f"  wrote {output.drop}: {format_size(output.size)}{same[output.same]}{path}"
        for failure in self.failures:
            yield f"  {failure.name} ({failure.drop}): {failure.code} {failure.text}"
            yield from (f"    {line}" for line in failure.hint.splitlines())
        yield f"in {self.output}"
        yield from self.hints


@click.command("replay")
@output_options
@click.argument("run", metavar="RUN", shell_complete=runs)
@click.argument("drop", metavar="DROP", shell_complete=drops)
@connection_options
@click.option(
    "-o", "target", metavar="DIR", help="An empty or new directory for it; by default below dropflow-replays."
)
@click.option("--pdb", "way", flag_value="pdb", help="Stop in Python's debugger where it raises.")
@click.option(
    "--debugpy", "way", flag_value="debugpy", help="Wait for an editor at port 5678 of this machine, or at a free one."
)
@click.option(
    "--shell", "way", flag_value="shell", help="Open a shell in place of its command, which is in command.sh."
)
@click.option("--edit", is_flag=True, help="Edit the source of its function first, in $VISUAL or $EDITOR.")
@click.option("--export", is_flag=True, help="Copy its inputs, so that DIR is all that another person needs.")
@click.option(
    "--most",
    metavar="BYTES",
    type=click.IntRange(min=1),
    default=_EXPORTED_BYTES,
    show_default=True,
    help="Inputs that --export copies at most.",
)
@click.option(
    "--with-secrets",
    is_flag=True,
    help="Export it although inputs, parameters or variables have names of secrets, or it uses secrets of the host.",
)
@click.option(
    "--locals",
    "report_locals",
    is_flag=True,
    help="If it fails, report the local variables of the function that raised; those of names such as token, password "
    "and key are hidden.",
)
def replay_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    run: str,
    drop: str,
    target: str | None,
    way: str | None,
    edit: bool,
    export: bool,
    most: int,
    with_secrets: bool,
    report_locals: bool,
) -> Exit:
    """Run the application DROP of RUN once more, outside of RUN, with the inputs that it had.

    RUN is the directory of a run that has ended, or a session of a manager if there is no such directory, or with --to:
    then the inputs are fetched. Inputs that are gone are made again first, by the applications upstream. DROP is a text
    id, the end of one, or a name as pages show it. Nothing is written outside of DIR, which is a run of its own:
    'dropflow log', 'explain' and 'replay' take it too.

    The code of the drop runs on this machine, as with 'dropflow run'. With --export, give DIR to a colleague, who types
    'dropflow replay DIR DROP --pdb'. Exit status 1 if it fails here too.
    """
    if way is not None and output.kind is OutputKind.JSON:
        raise UsageError(f"--{way} talks to a person, and cannot be used with --output json", hint="leave one out")
    name = f"{safe_name(Path(run).name, fallback='run')}-{drop_file_name(drop)}"
    directory = _empty(Path(target).absolute() if target is not None else _new(name))
    replay = _prepared(manager, run, drop, directory, most if export else None)
    if edit:
        replay = replay.with_code(_edited(replay.code, directory))
    if export:
        replay = replay.with_copies(directory, most, has_secrets=with_secrets)
    shell = _Shell(directory)
    ways: Mapping[str | None, RunApp | None] = {None: None, "pdb": _post_mortem, "debugpy": _editor, "shell": shell}
    result = replay.run(directory, ways[way], report_locals=report_locals)
    if way == "shell" and not shell.was_open:
        output.note(f"{replay.template.name} runs no command, so no shell was opened: use --pdb")
    output.answer(_reply(replay, result, directory, is_edited=edit))
    return Exit.FINISHED if result.status is SessionState.FINISHED else Exit.FAILED


def _new(name: str) -> Path:
    """Return a directory below ``dropflow-replays`` that does not exist."""
    root = Path("dropflow-replays").absolute()
    return next(path for number in range(1, 1 << 30) if not (path := root / f"{name}-{number}").exists())


def _empty(directory: Path) -> Path:
    """Make a directory, unless it is there and empty."""
    from dropflow.data.storage_errors import storage_errors

    with storage_errors("make", str(directory)):
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConflictError("the directory is not empty", where=str(directory), hint="name a new directory with -o")
    return directory


def _prepared(manager: ConnectionOptions, run: str, drop: str, directory: Path, most: int | None) -> "Replay":
    from dropflow.sessions.replay import replay_of_run, replay_of_states

    if is_run_directory(run):
        return replay_of_run(Path(run).absolute(), drop)
    import numpy as np

    from dropflow.graph.text_ids import find_drop

    with manager.connect() as client:
        graph = client.graph(run)
        known = client.states(run)
        states = np.zeros(graph.drops, dtype=np.uint8)
        states[known.rows] = known.values
        states[states > max(DropState)] = DropState.WRITING
        contents = _fetched(client, run, graph, directory, most)
        return replay_of_states(graph, find_drop(graph, drop, states), states, contents, {})


def _fetched(client: "Client", session: str, graph: "PhysicalGraph", directory: Path, most: int | None) -> "Contents":
    """Return what fetches contents of a session into ``inputs``, at most so many bytes."""
    from dropflow.cli.sessions.downloads import FetchedFile, ResultDownload, WantedFile
    from dropflow.cli.sessions.fetch import content_of
    from dropflow.cli.sessions.incoming_files import ResultDirectory
    from dropflow.execution.content_location import Handle
    from dropflow.graph.text_ids import oid
    from dropflow.sessions.replay import refuse_large

    def contents(rows: Sequence[int]) -> "dict[int, Handle]":
        wanted: dict[WantedFile, int] = {}
        handles: dict[int, Handle] = {}
        for row in rows:
            detail = client.drop(session, oid(graph, row))
            if not detail.has_data:
                if detail.size == 0:
                    handles[row] = Handle(kind="null")
                continue
            place = detail.parameters.get("filepath", "").rsplit("/", 1)[-1] or drop_file_name(detail.oid)
            result = content_of(detail, f"inputs/{row}/{safe_name(place, fallback='content')}")
            wanted[WantedFile(result, PurePosixPath(result.path))] = row
        if most is not None:
            refuse_large(session, sum(wanted_file.result.size for wanted_file in wanted), most)
        with ResultDirectory(directory) as results:
            fetched = ResultDownload(client, session, results, lambda *_: None).run([*wanted])
        for file, outcome in fetched.items():
            path = directory / file.path
            if isinstance(outcome, FetchedFile):
                is_directory = path.is_dir()
                handles[wanted[file]] = Handle(
                    kind="directory" if is_directory else "file", location=str(path), size=file.result.size
                )
        return handles

    return contents


def _edited(source: str, directory: Path) -> str:
    path = directory / "files" / "func_code.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(source, encoding="utf-8")
    click.edit(filename=str(path))
    return path.read_text(encoding="utf-8")


def _reply(replay: "Replay", result: "SessionResult", directory: Path, *, is_edited: bool) -> ReplayReply:
    from dropflow.graph.text_ids import oid
    from dropflow.sessions.stopped import StoppedRun

    ended = StoppedRun.read(directory)
    outputs = []
    for row in replay.outputs:
        record, before = ended.records.get(row), replay.before.get(row)
        if record is None:
            continue
        is_known = before is not None and bool(before.checksum) and bool(record.checksum)
        is_same = is_known and before is not None and (before.size, before.checksum) == (record.size, record.checksum)
        handle = record.in_directory(directory)
        path = "" if handle is None else handle.location
        outputs.append(
            ReplayedOutput(drop=oid(replay.graph, row), path=path, size=record.size, same=is_same if is_known else None)
        )
    log = directory / "logs" / f"{drop_file_name(replay.oid)}.log"
    hints: tuple[str, ...] = ()
    if is_edited and result.status is SessionState.FINISHED:
        source = shlex.quote(str(directory / "files" / "func_code.py"))
        setting = f'"{replay.template.name}.func_code=$(cat {source})"'
        hints = (f"give the source back with: dropflow retry RUN --set {setting}",)
    return ReplayReply(
        ok=result.status is SessionState.FINISHED,
        drop=replay.oid,
        state=DropState(ended.states[replay.drop]).name,
        inputs=tuple(_input_lines(replay)),
        made_again=replay.made_again,
        outputs=tuple(outputs),
        failures=tuple(
            failure for failure in result.failures if failure.code
        ),  # of inputs that had failed nothing is known
        log=log.read_text(encoding="utf-8", errors="replace") if log.exists() else "",
        output=str(directory),
        hints=hints,
    )


def _input_lines(replay: "Replay") -> Iterator[str]:
    from dropflow.graph.text_ids import oid

    for row in replay.inputs:
        content = replay.contents.get(row)
        name = f"{replay.graph.templates[replay.graph.template[row]].name} ({oid(replay.graph, row)})"
        if content is None:
            state = DropState(replay.states[row])
            yield f"{name}: {'made again' if state is DropState.INITIALIZED else state.name}"
        else:
            place = f", {content.location}" if content.location else ""
            yield f"{name}: {format_size(content.size)}{place}"


# What runs the application in place of a worker.


def _terminal() -> "pdb.Pdb":
    """Return a debugger at the terminal; the standard streams go to the log of the drop."""
    import pdb  # noqa: T100 - people debug with it

    return pdb.Pdb(stdin=sys.__stdin__, stdout=sys.__stdout__)


def _post_mortem(app: "App", context: "AttemptContext") -> None:
    """Run the application; where it raises, or calls `breakpoint`, a person takes over."""
    former = sys.breakpointhook
    sys.breakpointhook = lambda *_, **__: _terminal().set_trace(sys._getframe(1))  # noqa: SLF001 - as pdb does
    try:
        app.run(context)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.__stdout__)
        debugger = _terminal()
        debugger.reset()
        debugger.interaction(None, error.__traceback__)
        raise
    finally:
        sys.breakpointhook = former


def _editor(app: "App", context: "AttemptContext") -> None:
    """Run the application when an editor is attached, and stop where its function begins."""
    # Otherwise the debugger warns that the modules of Python itself have no lines, and the log of the drop has that.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    try:
        import debugpy  # noqa: T100 - people debug with it
    except ImportError as error:
        raise MissingDependencyError("debugpy is not installed", hint=install_hint("debug")) from error
    from dropflow.apps.functions.function import PyFuncApp

    source = context.directory / "func_code.py"
    if isinstance(app, PyFuncApp) and app.load_from(source):
        print(f"set breakpoints in {source}, which is the source of {app.template.name}", file=sys.__stderr__)
    _, port = debugpy.listen(("127.0.0.1", _free_port()))  # noqa: T100
    print(f"waiting for a debugger at 127.0.0.1:{port}", file=sys.__stderr__, flush=True)
    debugpy.wait_for_client()  # noqa: T100
    import pydevd

    # debugpy.breakpoint() stops in this function, or nowhere if the editor shows only the user's code.
    pydevd.settrace(suspend=True, trace_only_current_thread=True, patch_multiprocessing=False)
    app.run(context)


def _free_port() -> int:
    """Return the port for editors, or 0 if another process has it: then the system chooses one."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _DEBUGGER_PORT))
        except OSError:
            return 0
    return _DEBUGGER_PORT


class _Shell:
    """Runs the application; in place of its command, a shell is opened."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.was_open = False

    def __call__(self, app: "App", context: "AttemptContext") -> None:
        app.run(_ShellContext(context, self))

    def open(self, command: str, environment: Mapping[str, str], folder: Path) -> int:
        """Write the command to ``command.sh``, and return the exit status of a shell beside it."""
        import subprocess

        self.was_open = True
        script = folder / "command.sh"
        script.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        script.chmod(0o700)
        print(f"its command is in {script}; the exit status of this shell counts for it", file=sys.__stderr__)
        shell = os.environ.get("SHELL", "/bin/sh")
        ended = subprocess.run(  # noqa: S603 - the user's shell
            [shell],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=sys.__stdin__,
            stdout=sys.__stdout__,
            stderr=sys.__stderr__,
            check=False,
        )
        return ended.returncode


class _ShellContext:
    """The context of an attempt whose commands a person runs."""

    def __init__(self, context: "AttemptContext", shell: _Shell) -> None:
        self._context = context
        self._shell = shell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def command(self, command: str, environment: Mapping[str, str], **_: Any) -> int:
        """Open the shell."""
        return self._shell.open(command, environment, self._context.directory)
