"""Completion in real shells: commands, options, graphs, sessions, drops, nodes and algorithms."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from managers.service import Service
from tests.cli.conftest import TOKEN

pytestmark = pytest.mark.slow

Complete = Callable[..., list[str]]

_BASH = """
eval "$(dropflow completion bash)"
read -ra COMP_WORDS <<< "$1"
[[ $1 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_dropflow_completion dropflow 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
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
        return done.stdout.split()

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


def test_bash_completes_what_a_manager_has(complete: Complete, service: Service) -> None:
    """Sessions, their drops, and nodes are those of the manager that the command would use."""
    assert complete("dropflow watch fi", url=service.url) == ["finished"]
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
