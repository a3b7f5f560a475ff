"""Commands in the documents run, and links between them exist."""

import fcntl
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
)
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^ *```(.*)\n((?:.*\n)*?) *```$", re.MULTILINE)
_COMMAND = re.compile(r"\w*\$ |(dropflow|pip|python3?|make|curl|ssh|scp|export|sudo) (?!=)")
_ELSEWHERE = {"slurm.md": "shell", "cluster.md": "shell", "ssh.md": "shell", "rest-jobs.md": "sh"}
"""The language of blocks that other tests run, with what they need."""
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _commands(document: Path) -> list[str]:
    """Return the lines that start with ``$ `` in the console blocks of a document."""
    blocks = _BLOCK.findall(document.read_text(encoding="utf-8"))
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


_WITH_COMMANDS = [
    pytest.param(document, id=str(document.relative_to(ROOT))) for document in DOCUMENTS if _commands(document)
]


@pytest.mark.slow
@pytest.mark.parametrize("document", _WITH_COMMANDS)
def test_commands_of_the_documents_run(document: Path, tmp_path: Path) -> None:
    """Each document's console commands run, one after another, in a directory that holds only `examples/`.

    The status of a command that fails is in a comment: ``$ command   # exits with 2``. With the comment
    ``# in a terminal of its own`` a command stays until the others have run. A Python block that begins with the name
    of a file in a comment is that file.
    """
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, code in _FILE.findall(document.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(code, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    surroundings = {"cwd": tmp_path, "env": {"PATH": path, "HOME": str(tmp_path), "COLUMNS": "120"}}
    with ExitStack() as stack:
        if "# in a terminal of its own" in document.read_text(encoding="utf-8"):
            stack.enter_context(_ports())
        for command in _commands(document):
            if "# in a terminal of its own" in command:
                stack.enter_context(_staying(command, surroundings))
                continue
            expected = re.search(r"# exits with (\d+)", command)
            line = ["/bin/bash", "-c", command]
            done = subprocess.run(line, capture_output=True, text=True, check=False, **surroundings)
            wanted = int(expected[1]) if expected else 0

            assert done.returncode == wanted, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_blocks_of_commands_run_or_say_why_not(document: Path) -> None:
    """A block with commands runs, or begins with a reason: ``console not run: needs three hosts``."""
    text = document.read_text(encoding="utf-8")
    kinds = [(kind, body) for kind, body in _FENCE.findall(text) if any(map(_COMMAND.match, body.splitlines()))]
    run = {"console", _ELSEWHERE.get(document.name, "console")}
    indented = [line for line in re.findall(r"^    (.*)", _FENCE.sub("", text), re.MULTILINE) if _COMMAND.match(line)]

    assert [kind for kind, _ in kinds if kind not in run and not re.fullmatch(r"console not run: .+", kind)] == []
    assert [body for kind, body in kinds if kind == "console" and not re.search(r"^\$ ", body, re.MULTILINE)] == []
    assert indented == []


@contextmanager
def _ports() -> Iterator[None]:
    """Keep other test runs on this machine from using the default ports, which the commands of the documents use."""
    with (Path(tempfile.gettempdir()) / "dropflow-default-ports.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _staying(command: str, surroundings: dict[str, Any]) -> Iterator[None]:
    """Run a command that stays, from its ready line until the other commands are done."""
    line = ["/bin/bash", "-c", f"exec {command}"]
    errors = surroundings["cwd"] / "staying.err"
    with (
        errors.open("w") as log,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True, **surroundings) as process,
    ):
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready, f"{command}\n{errors.read_text()}"
            assert json.loads(ready)["ready"] is True, command
            yield
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_between_documents_exist(document: Path) -> None:
    """Every relative link of a document points at a file of the repository."""
    links = _LINK.findall(document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]

    assert [link for link in local if not (document.parent / link).exists()] == []
