"""``dropflow replay``: an attempt again on this machine, outside of its run, with the inputs that it had."""

import importlib.util
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

import dropflow
from dropflow import Graph, app
from dropflow.apps.failed_inputs import local_lines
from dropflow.apps.runtime_environment import VARIABLES
from dropflow.errors import ExportError, UsageError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions.local_run import run
from dropflow.sessions.replay import replay_of_run
from tests.cli.answers import Command


@app
def numbers(count: int) -> bytes:
    """Return some bytes: more than the journal keeps."""
    return bytes(range(count)) * 1000


@app
def inverse(data: bytes) -> str:
    """Return a number, or raise."""
    lowest = min(data)
    print(f"the lowest of {len(data)} is {lowest}")  # noqa: T201 - goes to the log
    return str(1 / int(lowest))


@app
def double(data: bytes) -> bytes:
    """Return the bytes twice."""
    return data + data


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run in which `inverse` failed."""
    monkeypatch.chdir(tmp_path)
    with Graph("inverses") as graph:
        data = numbers(50)
        inverse(data)
        double(data)
    graph.run(directory=tmp_path / "run", runner="inline", check=False)
    return tmp_path / "run"


def tree(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_failed_drop_fails_alike_outside_of_its_run(command: Command, failed: Path) -> None:
    """The replay has the same failure and log, exits with 1, and leaves the run as it was."""
    before = tree(failed)
    answer = command("replay", failed, "inverse", "-o", "again", "--output", "json")

    assert answer.status == 1
    assert (answer.json["state"], answer.json["failures"][0]["text"]) == (
        "ERROR",
        "ZeroDivisionError: division by zero",
    )
    assert "the lowest of 50000 is 0" in answer.json["log"]
    assert {**tree(failed), ".lock": b""} == {**before, ".lock": b""}


def test_a_completed_drop_writes_the_same_bytes(command: Command, failed: Path) -> None:
    """Its outputs are in the directory of the replay, and are compared with those of the session."""
    answer = command("replay", failed, "double", "-o", "again", "--output", "json")

    assert answer.status == 0
    assert [one["same"] for one in answer.json["outputs"]] == [True]
    assert Path(answer.json["outputs"][0]["path"]).is_relative_to(failed.parent / "again")


def test_an_absolute_path_that_leads_up_is_below_the_replay(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written beside the home directory is written into the directory of the replay."""
    monkeypatch.setenv("HOME", str(tmp_path / "homes" / "user"))
    with Graph("numbers") as graph:
        numbers(50).save("$HOME/../../shared/numbers.dat")
    graph.run(directory=tmp_path / "run", runner="inline")
    answer = command("replay", tmp_path / "run", "numbers", "-o", tmp_path / "again", "--output", "json")

    assert (tmp_path / "shared" / "numbers.dat").is_file()
    assert answer.json["outputs"][0]["path"] == str(tmp_path / "again" / "files" / "shared" / "numbers.dat")


@pytest.mark.parametrize(
    ("component", "field"), [("file.FileDROP", "File path"), ("directory.DirectoryDROP", "dirpath")]
)
@pytest.mark.parametrize("place", ["${HOME}/made", "/{tmp}/made", " /{tmp}/made"])
def test_outputs_are_below_the_replay_however_their_fields_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: str, field: str, place: str
) -> None:
    """The place of an output is moved below the replay under every name and in every form that a run accepts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    command = (Argument(name="command", value="mkdir -p %o0 && rmdir %o0; date +%N > %o0", type="String"),)
    drawing = GraphBuilder("shell").app("MAKE", component="dlg.apps.bash_shell_app.BashShellApp", arguments=command)
    where = Argument(name=field, value=place.replace("/{tmp}", str(tmp_path)), type="String")
    drawing.data("made", component=f"dlg.data.drops.{component}", arguments=(where,)).connect("MAKE", "made")
    run(drawing.build(), tmp_path / "run", RunOptions(runner="inline"))
    before = (tmp_path / "made").read_bytes()

    (tmp_path / "again").mkdir()

    result = replay_of_run(tmp_path / "run", "MAKE").run(tmp_path / "again")

    assert result.status.name == "FINISHED", result.failures
    assert (tmp_path / "made").read_bytes() == before
    assert [path.name for path in (tmp_path / "again" / "files").rglob("made")] == ["made"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("component", "fields"),
    [
        ("dlg.data.drops.ngas.NgasDROP", {"ngasSrv": "127.0.0.1", "ngasPort": "1"}),
        ("dlg.data.drops.rdbms.RDBMSDrop", {"dbtable": "made", "dbparams": '{"database": "/nowhere/tables.sqlite"}'}),
    ],
)
def test_what_writes_to_a_store_is_not_replayed(tmp_path: Path, component: str, fields: dict[str, str]) -> None:
    """A replay archives no file and adds no rows: a store is refused, whatever the fields that name it."""
    command = (Argument(name="command", value="echo 1 > %o0", type="String"),)
    drawing = GraphBuilder("shell").app("MAKE", component="dlg.apps.bash_shell_app.BashShellApp", arguments=command)
    arguments = tuple(Argument(name=name, value=value, type="String") for name, value in fields.items())
    drawing.data("made", component=component, arguments=arguments).connect("MAKE", "made")
    run(drawing.build(), tmp_path / "run", RunOptions(runner="inline"))

    with pytest.raises(UsageError, match="made is written to a store"):
        replay_of_run(tmp_path / "run", "MAKE")


@pytest.mark.slow
def test_inputs_that_had_failed_are_no_failures_of_the_replay(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that tolerates them completes again, and the answer has no failure without a text."""
    monkeypatch.chdir(tmp_path)
    graph = Path(__file__).resolve().parents[3] / "examples" / "error-threshold.graph"
    run(dropflow.translate(graph).graph, tmp_path / "run", RunOptions(runner="inline"))
    answer = command("replay", "run", "Collect", "-o", "again", "--output", "json").json

    assert (answer["state"], answer["failures"]) == ("COMPLETED", [])
    assert any(one.endswith(": ERROR") for one in answer["inputs"])


@pytest.mark.slow
def test_inputs_that_are_gone_are_made_again(command: Command, failed: Path) -> None:
    """The applications that write them run first, and no others. The replay keeps them, also for its own replay."""
    answer = command("replay", failed, "inverse", "-o", "again")
    (failed.parent / "again").rename(failed.parent / "sent")

    assert "1 application ran before it, because inputs were gone" in answer.text
    assert "numbers" not in [path.name for path in (failed.parent / "sent" / "logs").iterdir()]
    assert command("replay", "sent", "inverse", "-o", "there", "--output", "json").json["made_again"] == 0
    assert command("replay", failed, "numbers", "-o", "first", "--output", "json").json["made_again"] == 0


@pytest.mark.slow
def test_an_edited_function_is_given_back(
    command: Command, failed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`--edit` runs the corrected source, and says how the run takes it; `retry` with that finishes the run."""
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/min(data)/max(data)/' \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    answer = command("replay", failed, "inverse", "-o", "again", "--edit")
    source = (tmp_path / "again" / "files" / "func_code.py").read_text()

    assert answer.status == 0
    assert "dropflow retry RUN --set" in answer.text
    assert command("retry", failed, "--set", f"Inverse.func_code={source}").status == 0


@pytest.mark.slow
def test_an_exported_replay_needs_nothing_else(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --export the inputs are copied, so that the directory can be replayed where the run is gone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("17")
    with Graph("files") as graph:
        inverse(graph.file(str(tmp_path / "data.txt")))
    graph.run(directory=tmp_path / "run", runner="inline", check=False)
    refused = command("replay", "run", "inverse", "-o", "small", "--export", "--most", "1")
    first = command("replay", "run", "inverse", "-o", "copy", "--export", "--output", "json")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "data.txt").unlink()
    (tmp_path / "copy").rename(tmp_path / "sent")
    second = command("replay", "sent", "inverse", "-o", "there", "--output", "json")

    assert first.status == 0, first.text
    assert refused.status == 2
    assert "DF128" in refused.err
    assert "its inputs have 2 Bytes, and 1 Byte are allowed" in refused.err
    assert "--most 2" in refused.err
    assert first.json["outputs"][0]["size"] == second.json["outputs"][0]["size"]
    assert second.json["outputs"][0]["same"] is True


@app
def login(data: bytes, api_token: str = "", place: str = "") -> str:
    """Fail with some local variables."""
    password, counts, url = "hunter2", [1, 2, 3], f"https://me:{api_token}@{place}"
    raise ValueError(f"no answer from {place}, {len(password + url + str(data))}, {counts}")


@pytest.fixture
def secretive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run that failed, and that has secrets in a parameter and in an input."""
    monkeypatch.chdir(tmp_path)
    with Graph("secrets") as graph:
        login(numbers(5), api_token="abc", place="here")
    run(graph.translate().graph, tmp_path / "run", RunOptions(runner="inline", report_locals=True))
    return tmp_path / "run"


def test_secrets_are_not_exported_unless_allowed(command: Command, secretive: Path) -> None:
    """A parameter, an input and a variable that are secret by their names refuse the copy, and the error names them."""
    refused = command("replay", secretive, "login", "-o", "copy", "--export")
    allowed = command("replay", secretive, "login", "-o", "copy2", "--export", "--with-secrets")
    replay = replay_of_run(secretive, "login")
    variables = Argument(name=VARIABLES, value=json.dumps({"ACCESS_TOKEN": "x", "LEVEL": "2", "B": "secret:B"}))
    templates = [
        msgspec.structs.replace(template, arguments=(variables,))
        if template.name == "Login"
        else msgspec.structs.replace(template, name="Password")
        if template.name == "Numbers data"
        else template
        for template in replay.graph.templates
    ]
    other = replace(replay, graph=replace(replay.graph, templates=tuple(templates)))
    with pytest.raises(ExportError, match="has secrets") as found:
        other.with_copies(secretive.parent / "copy3", 1 << 30)

    assert (refused.status, allowed.status) == (2, 1)
    assert "parameter 'api_token' of Login" in refused.err
    assert "--with-secrets" in refused.err
    for text in ("variable 'ACCESS_TOKEN' of Login", "secret:B of Login", "content of 'Password'"):
        assert text in found.value.text


@pytest.mark.slow
def test_local_variables_are_reported_on_request(command: Command, secretive: Path) -> None:
    """Those of the function that raised, without values of secrets; the run that did not ask has none."""
    told = command("explain", secretive, "login").text
    without = command("replay", secretive, "login", "-o", "one", "--output", "json").json["failures"][0]["inputs"]
    asked = command("replay", secretive, "login", "-o", "two", "--locals", "--output", "json").json
    lines = asked["failures"][0]["inputs"]

    assert "local counts = list of 3, the first: 1" in told
    assert not any(line.startswith("local ") for line in without)
    assert [line for line in lines if line.startswith("local ")] == [
        "local data = bytes, 5.0 kB",
        "local password = ***",
        "local counts = list of 3, the first: 1",
        "local url = 'https://***@here'",
    ]
    assert "hunter2" not in json.dumps(asked)


@pytest.mark.slow
def test_many_local_variables_are_shortened() -> None:
    """Their number and length are bounded, modules and functions are left out, and nothing of theirs raises."""

    class Unshown:
        @property
        def shape(self) -> str:
            raise RuntimeError

    try:
        exec(  # noqa: S102 - a function with many variables
            "import os\ndef f(): pass\n" + "".join(f"v{n} = 'x' * 5000\n" for n in range(99)) + "1 / 0",
            {"odd": Unshown()},
        )
    except ZeroDivisionError as error:
        lines = local_lines(error)

    assert (len(lines), lines[-1]) == (31, "and more local variables")
    assert lines[0] == "local odd = Unshown"
    assert max(map(len, lines)) < 250


@pytest.mark.parametrize(
    ("drop", "target", "text"),
    [
        ("nothing", "again", "nothing"),
        ("numbers data", "again", "is data, and nothing of it runs"),
        ("inverse", "run", "the directory is not empty"),
    ],
)
def test_what_cannot_be_replayed_is_said(command: Command, failed: Path, drop: str, target: str, text: str) -> None:
    """A drop that is not there, data, and a directory with files are refused."""
    answer = command("replay", failed, drop, "-o", target)

    assert answer.status == 2
    assert text in answer.err


@pytest.mark.slow
def test_a_debugger_stops_where_it_raises(failed: Path) -> None:
    """`--pdb` shows the frame of the function with its variables, at a terminal."""
    person, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "dropflow", "replay", failed, "inverse", "-o", "again", "--pdb"],
        cwd=failed.parent,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        os.write(person, b"p ('lowest', lowest, len(data))\nq\n")
        out, _ = process.communicate(timeout=60)
    os.close(person)
    os.close(terminal)

    assert b"ZeroDivisionError: division by zero" in out
    assert b"('lowest', 0, 50000)" in out
    assert process.returncode == 1


class Editor:
    """An editor that is attached to a debugger, by the Debug Adapter Protocol."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._stream = self._connection.makefile("rwb")
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._connection.close()

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request, and return its number."""
        self._sent += 1
        request = {"seq": self._sent, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(request).encode()
        self._stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._stream.flush()
        return self._sent

    def ask(self, command: str, **arguments: Any) -> Any:
        """Send a request, and return what its answer has."""
        return self._received("request_seq", self.send(command, **arguments))

    def wait_for(self, event: str) -> Any:
        """Return what an event has that has not happened yet."""
        return self._received("event", event)

    def _received(self, key: str, value: object) -> Any:
        while True:
            size = int(self._stream.readline().split(b":")[1])
            self._stream.readline()
            message = json.loads(self._stream.read(size))
            if message.get(key) == value:
                assert message.get("success", True), message
                return message.get("body")

    def stopped(self) -> tuple[str, int, dict[str, str]]:
        """Return where it has stopped, and the local variables there, and continue."""
        thread = self.wait_for("stopped")["threadId"]
        frame = self.ask("stackTrace", threadId=thread)["stackFrames"][0]
        scope = self.ask("scopes", frameId=frame["id"])["scopes"][0]
        found = self.ask("variables", variablesReference=scope["variablesReference"])["variables"]
        self.send("continue", threadId=thread)
        return frame["source"]["path"], frame["line"], {one["name"]: one["value"] for one in found}


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("debugpy"), reason="debugpy is absent: it is the extra 'debug'")
def test_an_editor_stops_where_it_has_breakpoints(failed: Path) -> None:
    """With `--debugpy`, in the source as the run had it, and first where the function begins, with its inputs."""
    source = failed.parent / "again" / "files" / "func_code.py"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = (
            "from dropflow.cli import main; from dropflow.cli.understand import replay; "
            f"replay._DEBUGGER_PORT = {taken.getsockname()[1]}; main.main()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program, "replay", failed, "inverse", "-o", "again", "--debugpy"],
            cwd=failed.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        told = process.stderr.readline(), process.stderr.readline()
    with Editor(int(told[1].rpartition(":")[2])) as editor:
        editor.ask("initialize", adapterID="test", pathFormat="path")
        # As for a package that is installed: what is not the user's code is not shown.
        editor.send(
            "attach", justMyCode=True, rules=[{"path": f"{Path(dropflow.__file__).parent}/**", "include": False}]
        )
        editor.wait_for("initialized")
        editor.ask("setBreakpoints", source={"path": str(source)}, breakpoints=[{"line": 4}])
        editor.send("configurationDone")
        stops = editor.stopped(), editor.stopped()
        editor.wait_for("terminated")
    out, _ = process.communicate(timeout=120)

    assert str(source) in told[0]
    assert [(path, line) for path, line, _ in stops] == [(str(source), 1), (str(source), 4)]
    assert stops[0][2]["data"].startswith("b'\\x00\\x01")
    assert stops[1][2]["lowest"] == "0"
    assert "ZeroDivisionError: division by zero" in out
    assert process.returncode == 1


@pytest.mark.slow
def test_a_person_takes_the_place_of_a_command(tmp_path: Path) -> None:
    """`--shell` writes the command to a file and opens a shell, whose exit status counts."""
    command = (Argument(name="command", value="echo wrong > %o0; exit 3", type="String"),)
    drawing = GraphBuilder("shell").app("MAKE", component="dlg.apps.bash_shell_app.BashShellApp", arguments=command)
    drawing.data("made", component="dlg.data.drops.file.FileDROP").connect("MAKE", "made")
    run(drawing.build(), tmp_path / "run", RunOptions(runner="inline"))
    ended = subprocess.run(
        [sys.executable, "-m", "dropflow", "replay", "run", "MAKE", "-o", "again", "--shell"],
        cwd=tmp_path,
        input=b"sed -i s/wrong/right/ command.sh; sh command.sh; exit 0\n",
        env={**os.environ, "SHELL": "/bin/sh"},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "again" / "files" / "shell_made_0").read_text() == "right\n"
