"""Which modules commands import, Ctrl-C in the meantime, and completion in real shells."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from managers.manager_server import Service
from tests.cli.conftest import TOKEN

pytestmark = pytest.mark.slow


_LARGE = (
    *("asyncio", "bottle", "cloudpickle", "concurrent.futures", "http.client", "humanize", "jsonschema"),
    *("multiprocessing", "numpy", "platformdirs", "prometheus_client", "psutil", "pymetis", "rich", "rustworkx"),
    *("subprocess", "tarfile", "waitress", "zeroconf", "zmq"),
    *("dropflow.apps", "dropflow.data", "dropflow.execution", "dropflow.graph.physical", "dropflow.graph.templates"),
    "dropflow.api.client",
    *("managers.node", "managers.composite", "managers.links", "translator.pipeline"),
)
_HELP = """
import contextlib, io, json, sys
from dropflow.cli.main import commands, main

found, known = {}, set()
for name in commands.commands:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main([name, "--help"])
    new = {large for large in sys.argv[1:] if large in sys.modules} - known
    known |= new
    if new:
        found[name] = sorted(new)
print(json.dumps(found))
"""
_ASK = """
import contextlib, io, json, sys
from dropflow.cli.main import main

found, known = {}, set()
for command in json.load(sys.stdin):
    answer = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(answer):
        main([*command.split(), "--to", "http://127.0.0.1:1"])
    if "nothing listens there" not in answer.getvalue():
        found[command] = answer.getvalue()
    new = {large for large in sys.argv[1:] if large in sys.modules} - known
    known |= new
    if new:
        found[command] = sorted(new)
print(json.dumps(found))
"""
_RUN = """
import contextlib, io, json, sys
from dropflow.cli.main import main

with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["run", sys.argv[1]])
print(json.dumps([name for name in sys.argv[2:] if name in sys.modules]))
"""
_NOT_FOR_A_RUN = (
    *(
        "dropflow.api.session_records",
        "dropflow.runners.executor",
        "dropflow.graph.completeness",
        "dropflow.graph.daliuge_read",
    ),
    *("dropflow.graph.exports", "dropflow.preview", "dropflow.sessions.retry", "dropflow.sessions.stopped"),
    *("dropflow.reuse", "dropflow.web", "translator.plan.registry"),
    *("configparser", "importlib.metadata", "numpy.ma", "tomllib"),
)
_INTERRUPTED = """
import os, runpy, signal, sys

class Interrupt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

handler, module, *sys.argv = sys.argv[1:]
signal.signal(signal.SIGINT, getattr(signal, handler))
sys.meta_path.insert(0, Interrupt)
runpy.run_module("dropflow", run_name="__main__")
"""
_CLIENT = (
    *(
        "watch s --once",
        "sessions",
        "nodes",
        "watch s --patience 0",
        "explain s d",
        "log s",
        "fetch s -o x",
        "fetch s d",
    ),
    *("cancel s", "delete s", "pause s", "resume s --force", "resume s", "retry s", "rebalance s", "drain n"),
    "open s",
)
"""Commands that ask a manager, and draw and compute nothing."""


def _run(script: str, *arguments: str, typed: str = "", where: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        input=typed,
        cwd=where,
        env=os.environ | {"DROPFLOW_TOKEN": "token"},  # a cluster key is read by zmq
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_of_no_command_imports_a_large_module() -> None:
    """Help is printed in the time that click needs."""
    printed = _run(_HELP, *_LARGE)

    assert json.loads(printed.stdout) == {}


def test_commands_that_ask_a_manager_import_no_numpy(tmp_path: Path) -> None:
    """Only commands that draw, compute or send a graph pay for it, and for the engine, components and tar files."""
    small = {"http.client", "platformdirs", "dropflow.apps", "dropflow.data", "dropflow.api.client"}
    large = [module for module in _LARGE if module not in small] + ["dropflow.apps.registry", "dropflow.data.registry"]
    printed = _run(_ASK, *large, typed=json.dumps(_CLIENT), where=tmp_path)

    assert (json.loads(printed.stdout), printed.stderr) == ({}, "")


def test_a_run_imports_only_what_it_does(examples: Path, tmp_path: Path) -> None:
    """No planner without parts, no records of failures without one, no result store without reuse, no executor."""
    printed = _run(_RUN, str(examples / "hello.graph"), *_NOT_FOR_A_RUN, where=tmp_path)

    assert (json.loads(printed.stdout), printed.stderr) == ([], "")


@pytest.mark.parametrize("module", ["click", "dropflow.cli.graphs.info", "dropflow.cli.graphs.graph_files", "numpy"])
def test_ctrl_c_during_an_import_ends_the_command_without_a_traceback(module: str, examples: Path) -> None:
    """Before the command begins as well as while it imports what it needs; the exit status is 130."""
    graph = str(examples / "nested-scatter-gather.graph")
    ended = _run(_INTERRUPTED, "default_int_handler", module, "dropflow", "info", graph)

    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (130, "", "interrupted")


def test_a_command_with_sigint_ignored_ignores_it() -> None:
    """As in a shell that starts commands in the background."""
    ended = _run(_INTERRUPTED, "SIG_IGN", "dropflow.cli.completion", "dropflow", "completion", "bash")

    assert (ended.returncode, ended.stderr) == (0, "")


# Completion in real shells: commands, options, graphs, sessions, drops, nodes and algorithms.


Complete = Callable[..., list[str]]
_BASH = """
eval "$(dropflow completion bash)"
COMP_LINE=$1
read -ra COMP_WORDS <<< "$(sed -E 's/[:=]+/ & /g; s/ +$//' <<< "$1")"  # as bash divides words
[[ $1 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_dropflow_completion dropflow 2>/dev/null
for reply in "${COMPREPLY[@]}"; do printf '%s\\n' "$reply"; done
"""
_ZSH = """
compdef() { :; }
compadd() {
    if [[ ${@[-2]} == -a ]]; then print -rl -- "${plain[@]}"; else print -r -- "${@[-1]}"; fi
}
_describe() { print -rl -- "${described[@]%%:*}" }
eval "$(dropflow completion zsh)"
words=(${=1}); [[ $1 == *" " ]] && words+=("")
CURRENT=$#words
_dropflow_completion
"""
_FISH = """
dropflow completion fish | source
complete -C $argv[1] | string split -f 1 \\t
"""


@pytest.fixture
def complete(home: Path, examples: Path, tmp_path: Path) -> Complete:
    """Return the candidates that a shell has for the end of a line, in a directory with the examples."""
    shutil.copytree(examples, tmp_path / "examples")
    commands = {"bash": ["bash", "-c", _BASH, "bash"], "zsh": ["zsh", "-f", "-c", _ZSH, "zsh"]}
    commands["fish"] = ["fish", "--no-config", "-c", _FISH]

    def complete(line: str, *, shell: str = "bash", url: str = "") -> list[str]:
        environment = {**os.environ, "HOME": str(home), "DROPFLOW_URL": url, "DROPFLOW_TOKEN": TOKEN if url else ""}
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [*commands[shell], line],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={name: value for name, value in environment.items() if value},
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    return complete


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_commands_graphs_and_algorithms(complete: Complete, shell: str) -> None:
    """The printed script works in the shell that it is for."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")

    assert complete("dropflow un", shell=shell) == ["unroll"]
    assert complete("dropflow run examples/he", shell=shell) == ["examples/hello.graph"]
    assert complete("dropflow partition examples/hello.graph --algorithm he", shell=shell) == ["heft"]


def test_bash_completes_options_files_and_parameters(complete: Complete) -> None:
    """Files that are no graphs are left out; of a graph the parameters and those of its nodes are known."""
    assert complete("dropflow run --run") == ["--runner"]
    assert "examples/functions.py" not in complete("dropflow check examples/")
    assert complete("dropflow run exa") == ["examples"]
    assert complete("dropflow run examples/estimate-pi.graph --set ba") == ["batches="]
    assert "Greet.greet=" in complete("dropflow run examples/hello.graph --set Greet.")
    assert complete("dropflow sessions --output=j") == ["json"]


def test_names_with_spaces_are_quoted_for_bash(complete: Complete, tmp_path: Path) -> None:
    """Bash inserts a candidate as it is: what a graph is called must be one word there, and run nothing."""
    text = (tmp_path / "examples" / "hello.graph").read_text().replace('"name": "Greet"', '"name": "a b$(touch x)"')
    (tmp_path / "hostile.graph").write_text(text)

    assert "a\\ b\\$\\(touch\\ x\\).greet=" in complete("dropflow run hostile.graph --set a")


def test_bash_completes_what_a_manager_has(complete: Complete, service: Service) -> None:
    """Sessions, their drops, and nodes are those of the manager that the command would use."""
    assert complete("dropflow watch fi", url=service.url) == ["finished"]
    assert complete(f"dropflow watch --token {TOKEN} --to {service.url} fi") == ["finished"]
    assert complete("dropflow drain node-", url=service.url) == ["node-1", "node-2"]
    drops = complete("dropflow log failed ", url=service.url)
    assert drops
    assert complete(f"dropflow log failed {drops[0]}", url=service.url)[0] == drops[0]


def test_runs_on_this_machine_are_completed_with_their_drops(complete: Complete, tmp_path: Path) -> None:
    """Directories of runs, and the drops of their graphs, need no manager."""
    line = [sys.executable, "-m", "dropflow", "run", "examples/hello.graph", "--keep", "said", "--runner", "inline"]
    subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)

    assert complete("dropflow explain sa") == ["said"]
    assert complete("dropflow explain sa") == ["said"]
    assert len(complete("dropflow explain said ")) == 2


def test_a_silent_manager_means_no_candidates(complete: Complete) -> None:
    """One that accepts connections and never answers, or none at all, is no error and no hang."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert complete("dropflow watch x", url=f"http://127.0.0.1:{silent.getsockname()[1]}") == []
    assert complete("dropflow watch x", url="http://127.0.0.1:1") == []
    assert complete("dropflow explain nothing ") == []
