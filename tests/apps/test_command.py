"""Shell commands: output, status, streams, runtime environment, and how they are stopped."""

import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import psutil
import pytest

from dropflow.apps.command import Command, StdinFeeder
from dropflow.apps.needs import check, refuse_need
from dropflow.apps.runtime_environment import SECRETS_VARIABLE, RuntimeEnvironment, hidden_in
from dropflow.data.streams import StreamPublisher, StreamReader
from dropflow.errors import AppError, BadParameterError, Interrupted, MissingDependencyError, StorageError
from dropflow.execution.content_location import Handle
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.testing.attempts import Attempted, Given, try_app


class _Output:
    """Collects output, and sets an event when a word is in it."""

    def __init__(self, word: bytes = b"") -> None:
        self.body = b""
        self.word = word
        self.seen = threading.Event()

    def __call__(self, block: bytes) -> None:
        self.body += block
        if self.word and self.word in self.body:
            self.seen.set()


def _command(text: str, directory: Path, output: _Output | None = None) -> Command:
    return Command(text, directory, {"PATH": os.environ["PATH"], "WHO": "me"}, output or _Output())


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def soon() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition holds."""

    def wait(condition: Callable[[], bool]) -> None:
        while not condition():
            threading.Event().wait(0.01)

    return wait


def test_a_command_has_its_directory_environment_output_and_status(tmp_path: Path) -> None:
    """A command runs in its directory with its environment; output and errors come in order, and the exit status."""
    output = _Output()
    status = _command("echo $WHO; echo err >&2; pwd; exit 3", tmp_path, output).run()

    assert status == 3
    assert output.body.decode().splitlines() == ["me", "err", str(tmp_path)]


def test_output_larger_than_a_pipe_is_complete(tmp_path: Path) -> None:
    """Output that exceeds the capacity of a pipe is complete."""
    output = _Output()

    assert _command("head -c 3000000 /dev/zero", tmp_path, output).run() == 0
    assert output.body == bytes(3_000_000)


def test_a_killed_command_has_128_plus_the_signal_as_status(tmp_path: Path) -> None:
    """The status is 128 plus the number of the signal, as in a shell."""
    assert _command("kill -9 $$", tmp_path).run() == 137


def test_a_command_is_killed_if_it_cannot_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of threads of a user it fails at once; it is not waited for, since nothing could stop it."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        _command("sleep 2; touch done", tmp_path).run()

    assert not (tmp_path / "done").exists()


def test_a_command_ends_where_the_ends_of_children_are_ignored(tmp_path: Path) -> None:
    """Its status is not known then: an error, not a success, and not a command that is waited for without end."""
    former = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(AppError, match="the status of the command is not known"):
            _command("exit 3", tmp_path).run()
    finally:
        signal.signal(signal.SIGCHLD, former)


@pytest.mark.slow
def test_the_command_of_dropflow_does_not_ignore_the_ends_of_children() -> None:
    """Even if it is started by a process that does."""
    code = (
        "import signal, dropflow.__main__ as process\n"
        "process._set_handler = lambda *_, **__: print(signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL)\n"
        "process.main()"
    )
    shell = f"trap '' CHLD; exec {sys.executable} -c {shlex.quote(code)} --version"
    said = subprocess.run(["/bin/bash", "-c", shell], capture_output=True, text=True, check=True).stdout

    assert said.startswith("True")


def test_stopping_a_command_ends_its_children(tmp_path: Path, soon: Callable[[Callable[[], bool]], None]) -> None:
    """A stop from another thread ends the command, its children and its pipes, and raises Interrupted."""
    output = _Output(b"started\n")
    command = _command("sleep 1000 & echo $!; sleep 1000 | cat & echo started; wait", tmp_path, output)
    stopper = threading.Thread(target=lambda: (output.seen.wait(), command.stop()))
    stopper.start()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    stopper.join()

    soon(lambda: _gone(int(output.body.split()[0])))


@pytest.mark.slow
def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """Processes that ignore SIGTERM are killed after the grace period."""
    output = _Output(b"started\n")
    command = _command("trap '' TERM; echo started; while true; do sleep 0.05; done", tmp_path, output)
    stopper = threading.Thread(target=lambda: (output.seen.wait(), command.stop(0.1)))
    stopper.start()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    stopper.join()


@pytest.mark.slow
def test_children_of_a_stopped_shell_have_the_grace_period_too(tmp_path: Path) -> None:
    """The shell ends at SIGTERM; a program in it cleans up, and what it prints meanwhile is kept."""
    output = _Output(b"started\n")
    program = (
        "trap 'sleep 0.5; echo cleaned > cleaned; echo tidy; exit' TERM; echo started; while :; do sleep 0.05; done"
    )
    command = _command(f"bash -c '{program.replace(chr(39), chr(34))}' | cat; echo never", tmp_path, output)
    stopper = threading.Thread(target=lambda: (output.seen.wait(), command.stop(60)))
    stopper.start()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    stopper.join()

    assert (tmp_path / "cleaned").read_text() == "cleaned\n"
    assert b"never" not in output.body


def test_a_second_stop_shortens_the_grace_period(tmp_path: Path) -> None:
    """A command that is stopped again with less time is killed then."""
    output = _Output(b"started\n")
    command = _command("trap '' TERM; echo started; while true; do sleep 0.05; done", tmp_path, output)
    stopper = threading.Thread(target=lambda: (output.seen.wait(), command.stop(1000), command.stop(0)))
    stopper.start()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    stopper.join()


def test_a_stop_before_the_start_ends_the_command(tmp_path: Path) -> None:
    """A command that is stopped before it runs ends immediately after its start."""
    command = _command("sleep 1000", tmp_path)
    command.stop()
    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    command.stop()


def test_background_children_do_not_delay_the_end(tmp_path: Path, soon: Callable[[Callable[[], bool]], None]) -> None:
    """A process in the background is ended with its command, even if it holds the output open."""
    output = _Output()

    assert _command("sleep 1000 & echo $!", tmp_path, output).run() == 0
    soon(lambda: _gone(int(output.body)))


def test_a_command_that_cannot_start_is_reported(tmp_path: Path) -> None:
    """A missing directory, or a command with a null byte, is an error with its reason."""
    with pytest.raises(AppError, match="cannot be started"):
        _command("true", tmp_path / "nowhere").run()
    with pytest.raises(AppError, match="cannot be started"):
        _command("echo \0", tmp_path).run()


def test_commands_leak_no_files_or_threads(tmp_path: Path) -> None:
    """After many commands there are no more open files and threads than before."""
    _command("true", tmp_path).run()
    me = psutil.Process()
    files, threads = me.num_fds(), threading.active_count()
    for _ in range(10):
        _command("true", tmp_path).run()

    # A thread of another test may have ended meanwhile.
    assert me.num_fds() <= files
    assert threading.active_count() <= threads


# Commands whose standard input and output are streams.


class Growing:
    """A stream that a test writes, and a source that reads it."""

    def __init__(self, directory: Path, check: Callable[[], None] = lambda: None) -> None:
        self.path = directory / "growing"
        self._file = self.path.open("ab", buffering=0)
        self._writer = StreamPublisher(str(directory / "growing.stream"), str(self.path), check)
        self.reader = StreamReader(str(directory / "growing.stream"), check)
        self.source: BinaryIO = io.BufferedReader(self.reader)  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        """Append."""
        self._file.write(data)
        self._writer.grown(self.path.stat().st_size)

    def end(self) -> None:
        """No more comes."""
        self._writer.end(Handle(location=str(self.path), size=self.path.stat().st_size))

    def close(self) -> None:
        """Give all back."""
        self._writer.close()
        self._file.close()
        self.source.close()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    """One that has begun."""
    found = Growing(tmp_path)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No descriptor and no thread outlives a command."""
    before = psutil.Process().num_fds(), threading.active_count()
    yield
    assert psutil.Process().num_fds() <= before[0]
    assert threading.active_count() <= before[1]


def run(text: str, directory: Path, **more: Any) -> tuple[int, bytes]:
    """Exit status of a command, and its log."""
    log: list[bytes] = []
    status = Command(text, directory, {"PATH": os.environ["PATH"]}, log.append, **more).run()
    return status, b"".join(log)


def test_output_and_errors_go_their_ways(tmp_path: Path) -> None:
    """Standard output is written to its sink, whole and in order, and standard error to the log."""
    output: list[bytes] = []
    status, log = run("seq 100000; echo wrong >&2; exit 4", tmp_path, output=output.append)

    assert (status, log) == (4, b"wrong\n")
    assert b"".join(output) == b"".join(b"%d\n" % number for number in range(1, 100001))


def test_a_source_is_passed_on_whole(tmp_path: Path) -> None:
    """A filter reads all of its source on standard input."""
    content = os.urandom(3_000_000)
    output: list[bytes] = []
    source = io.BytesIO(content)
    status, _ = run("cat", tmp_path, source=source, output=output.append)

    assert status == 0
    assert b"".join(output) == content
    assert source.closed


def test_what_comes_is_passed_on_as_it_comes(tmp_path: Path, growing: Growing) -> None:
    """A command can write output while its input is still growing."""
    heard: list[bytes] = []

    def hear(block: bytes) -> None:
        heard.append(block)
        if len(heard) < 4:
            growing.write(b"more\n")
        else:
            growing.end()

    growing.write(b"first\n")
    status, _ = run("while read line; do echo got $line; done", tmp_path, source=growing.source, output=hear)

    assert status == 0
    assert heard == [b"got first\n", *[b"got more\n"] * 3]


def test_a_command_may_have_enough(tmp_path: Path, growing: Growing) -> None:
    """Its end does not wait for that of its source, whether it has read of it or not."""
    growing.write(b"line\n" * 100_000)

    assert run("head -1", tmp_path, source=growing.source) == (0, b"line\n")
    assert growing.source.closed


def test_a_command_that_never_reads_ends(tmp_path: Path, growing: Growing) -> None:
    """A source that waits for more is stopped when the command is over."""
    assert run("echo done", tmp_path, source=growing.source) == (0, b"done\n")


def test_what_is_left_behind_does_not_hold_the_end(tmp_path: Path) -> None:
    """A process that left its group and holds a full standard input open does not block the end of the command."""
    status, log = run("setsid sleep 1000 <&0 & echo $!", tmp_path, source=io.BytesIO(bytes(1_000_000)))
    left = psutil.Process(int(log))
    left.kill()

    assert status == 0


def test_a_source_that_fails_is_the_failure(tmp_path: Path) -> None:
    """A command that got only a part of its input fails, also with status 0."""

    class Broken(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            block = super().read1(min(size or 3, 3))
            if not block:
                raise StorageError("the disk is on fire")
            return block

    with pytest.raises(StorageError, match="on fire"):
        run("cat", tmp_path, source=Broken(b"123456"))


def test_a_stop_wakes_a_waiting_reader(tmp_path: Path) -> None:
    """A command is stopped while its source waits, and if the source is stopped first."""
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise Interrupted

    growing = Growing(tmp_path, check)
    growing.write(b"x\n")
    command = Command(
        "cat; sleep 1000", tmp_path, {"PATH": os.environ["PATH"]}, lambda _: stop(), source=growing.source
    )

    def stop() -> None:
        stopped.set()
        growing.reader.wake()
        command.stop()

    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    growing.close()


def test_a_sink_that_fails_ends_the_command(tmp_path: Path, growing: Growing) -> None:
    """A command whose output cannot be stored is killed, even if it would never end by itself."""

    def refuse(_: bytes) -> None:
        raise StorageError("no space left")

    with pytest.raises(StorageError, match="no space"):
        run("yes; sleep 1000", tmp_path, source=growing.source, output=refuse)


def test_a_command_that_cannot_start_closes_its_source(tmp_path: Path, growing: Growing) -> None:
    """The command is the only owner of its source."""
    with contextlib.suppress(Exception):
        run("cat", tmp_path / "nowhere", source=growing.source)

    assert growing.source.closed


def test_a_feeder_without_a_thread_leaves_nothing_open(
    tmp_path: Path, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is stopped, and no thread of it is left that writes to a descriptor that may be of another one."""
    start, started = threading.Thread.start, []

    def refuse(self: threading.Thread) -> None:
        if self.name == "feeder":
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run("cat", tmp_path, source=growing.source)
    assert (growing.source.closed, started) == (True, [])
    read, write = os.pipe()
    with os.fdopen(read, "rb"), os.fdopen(write, "wb") as pipe:
        before = psutil.Process().num_fds()
        with pytest.raises(RuntimeError, match="can't start new thread"):
            StdinFeeder(io.BytesIO(), pipe)
        assert psutil.Process().num_fds() == before


def test_a_feeder_ends_while_its_pipe_is_full(growing: Growing) -> None:
    """It stops at once, although no process reads from the pipe."""
    growing.write(bytes(1 << 20))
    read, write = os.pipe()
    feeder = StdinFeeder(growing.source, os.fdopen(write, "wb"))
    while len(os.read(read, 1)) == 0:
        pass
    feeder.end()
    os.close(read)

    assert feeder.error is None
    assert growing.source.closed


# Variables, secrets, modules and virtual environments of commands and functions, and functions in other processes.


BASH = "dlg.apps.bash_shell_app.BashShellApp"
FUNCTION = "dlg.apps.pyfunc.PyFuncApp"


def _run(component: str, directory: Path, *, inputs: Any = (), outputs: Any = ("out",), **fields: Any) -> Attempted:
    arguments = [Argument(name=name, value=value) for name, value in fields.items()]
    return try_app(component, directory, inputs=[Given(*each) for each in inputs], outputs=outputs, fields=arguments)


def _template(component: str = BASH, **fields: Any) -> Template:
    arguments = tuple(Argument(name=name, value=value) for name, value in {"command": "true", **fields}.items())
    return Template(key="k", name="n", kind=Kind.APP, component=component, arguments=arguments)


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of secrets of this host."""
    path = tmp_path / "secrets"
    path.write_text("# of the archive\nTOKEN = quite-a-long-token\n", encoding="utf-8")
    path.chmod(0o600)
    monkeypatch.setenv(SECRETS_VARIABLE, str(path))
    return path


def test_a_command_gets_variables_and_secrets_and_its_log_has_no_secret(secrets: Path, tmp_path: Path) -> None:
    """The output has the values; the log and the error have stars in place of the secret."""
    variables = '{"LEVEL": 2, "KEY": "secret:TOKEN"}'
    got = _run(BASH, tmp_path, command='echo "$LEVEL $KEY" > {out}; echo "uses $KEY"', environment=variables)
    failed = _run(BASH, tmp_path / "2", command='echo "lost $KEY"; exit 3', environment=variables)

    assert got.contents == [b"2 quite-a-long-token\n"]
    assert "uses ***" in got.log
    assert "lost ***" in failed.log
    assert "quite-a" not in got.log + failed.log + failed.failure.text + failed.failure.detail
    assert secrets.exists()


def test_a_secret_that_is_not_there_or_can_be_read_by_others_is_refused(secrets: Path) -> None:
    """Before anything runs: the error names the secret, its file, and what to do."""
    (needed,) = RuntimeEnvironment.of(_template(environment='{"KEY": "secret:TOKEN"}')).needs
    refuse_need(needed)
    with pytest.raises(MissingDependencyError, match="the secret 'OTHER' is not known on this host"):
        refuse_need("secret:OTHER")

    secrets.chmod(0o644)

    with pytest.raises(MissingDependencyError, match="other users may read its file") as caught:
        refuse_need(needed)
    assert caught.value.where == str(secrets)


def test_secrets_that_are_split_between_blocks_are_hidden() -> None:
    """What a program writes arrives in blocks of any size."""
    seen: list[bytes] = []
    write = hidden_in(seen.append, ["token", "token-2"])
    for block in (b"a to", b"ken", b"-2 b t", b"oken c", b""):
        write(block)
    assert b"".join(seen) == b"a *** b *** c"


def test_modules_are_loaded_before_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the shell function of Environment Modules; one that is not there fails the drop."""
    home = tmp_path / "modules"
    (home / "init").mkdir(parents=True)
    (home / "init" / "bash").write_text('module() { [ "$2" != absent ] && export LOADED="$*"; }\n', encoding="utf-8")
    monkeypatch.setenv("MODULESHOME", str(home))
    monkeypatch.delenv("LMOD_PKG", raising=False)
    refuse_need("modules:")

    got = _run(BASH, tmp_path, command="echo $LOADED > {out}", modules="gcc/12, casacore")
    failed = _run(BASH, tmp_path / "2", command="true", modules="absent")

    assert got.contents == [b"load gcc/12 casacore\n"]
    assert "the modules absent cannot be loaded" in failed.log


def test_a_function_runs_with_the_python_of_a_virtual_environment(tmp_path: Path) -> None:
    """Its value comes back, and what it prints is in the drop's log; the environment needs no dropflow."""
    path = tmp_path / "env"
    venv.create(path, with_pip=False)
    code = "import sys\ndef where(x, factor=2):\n    print('here')\n    return [sys.prefix, x * factor]\n"

    got = _run(
        FUNCTION,
        tmp_path,
        func_name="where",
        func_code=code,
        inputs=[("x", "ab")],
        virtual_environment=str(path),
    )

    assert got.values == [[str(path), "abab"]]
    assert "here" in got.log


def test_a_function_with_variables_runs_in_a_process_that_begins_with_them(secrets: Path, tmp_path: Path) -> None:
    """So that libraries read them when they are loaded. Its exception is that of the drop, without secrets."""
    code = "import os\nKEY = os.environ['KEY']\ndef fail():\n    raise LookupError('no ' + KEY)\n"

    got = _run(FUNCTION, tmp_path, func_name="fail", func_code=code, environment='{"KEY": "secret:TOKEN"}')

    assert "LookupError: no ***" in got.failure.text
    assert "line 4, in fail" in got.log
    assert "quite-a" not in got.log + got.failure.text + got.failure.detail
    assert secrets.exists()


TOOLS = "class Tools:\n    @staticmethod\n    def double(x):\n        return 2 * x\n"


@pytest.mark.parametrize("environment", ["", '{"A": "1"}'])
@pytest.mark.parametrize(
    ("name", "code", "given", "wanted"),
    [
        ("datetime.date.fromisoformat", "", ("in", "2026-11-28"), "2026-11-28"),
        ("xml.dom.minidom.parseString", "", ("string", "<a/>"), "Document"),
        ("fractions.Fraction.__init__", "", ("numerator", 4), "4"),
        ("dlg.apps.simple_functions.createRange", "", ("end", 3), "[0, 1, 2]"),
        ("some.Tools.double", TOOLS, ("x", 4), "8"),
    ],
)
def test_a_name_means_the_same_function_in_another_process(  # noqa: PLR0917 - drawn
    name: str, code: str, given: tuple[str, Any], wanted: str, environment: str, tmp_path: Path
) -> None:
    """A variable in a node does not change which names of functions are found."""
    fields = {"environment": environment} if environment else {}
    got = _run(FUNCTION, tmp_path, func_name=name, func_code=code, inputs=[given], **fields)

    assert wanted in str(got.values[0])


def test_fields_of_the_environment_are_checked_before_anything_runs(tmp_path: Path) -> None:
    """Unreadable values, an environment that is not there, and components that cannot have one."""
    for field, value, text in (
        ("environment", "LEVEL=2", "expected a JSON object"),
        ("environment", '{"A B": "c"}', "names of letters"),
        ("modules", "gcc;rm", "expected names of modules"),
        ("virtual_environment", "env", "expected the absolute path"),
    ):
        with pytest.raises(BadParameterError, match=text):
            RuntimeEnvironment.of(_template(**{field: value}))
    with pytest.raises(MissingDependencyError, match="no virtual or conda environment at"):
        refuse_need(f"virtual:{tmp_path}")
    (found,) = check([_template("dlg.apps.simple.CopyApp", environment='{"A": "b"}')], [])
    assert "environment" in found.text
    assert "cannot use" in found.text


def test_an_application_argument_of_such_a_name_stays_an_argument(tmp_path: Path) -> None:
    """Functions of the community have arguments called environment or modules."""
    name = Argument(name="environment", value="lab", parameter_type="ApplicationArgument")
    code = "import os\ndef tell(environment):\n    return environment, os.getpid()\n"
    fields = [name, Argument(name="func_name", value="tell"), Argument(name="func_code", value=code)]

    got = try_app(FUNCTION, tmp_path, outputs=("out",), fields=fields)

    assert got.values[0][0] == "lab"
