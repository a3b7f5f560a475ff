"""The documents: their commands and code run, names and links exist, and the site and changelog are built."""

import fcntl
import importlib
import json
import os
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

from dropflow import errors
from dropflow.dask.lost_chunks import LostChunksError
from dropflow.dask.persist import LostContentsError
from translator.problem_codes import CODES

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
            process.wait(120)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_between_documents_exist(document: Path) -> None:
    """Every relative link of a document points at a file of the repository."""
    links = _LINK.findall(document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]

    assert [link for link in local if not (document.parent / link).exists()] == []


# Names of modules, classes and files in the documents exist.


_CODE = re.compile(r"`([^`\n]+)`")
_DOTTED = re.compile(r"(?:dropflow|managers|translator|palettes)(?:\.\w+)+")
_PATH = re.compile(r"(?:dropflow|managers|translator|palettes|tests|docs|examples|benchmarks)/[\w./-]*")
# Class names in graphs, and a file of a user.
_OTHERS = {"dropflow.apps.GroupByApp", "translator.py"}


def exists(dotted: str) -> bool:
    """Return whether this is a module, or an attribute of one."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            if not hasattr(found, name) and name not in getattr(found, "__struct_fields__", ()):
                return False
            found = getattr(found, name, None)
        return True
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_modules_and_files_that_documents_name_exist(document: Path) -> None:
    """A renamed module or file is renamed in the documents too."""
    codes = _CODE.findall(document.read_text(encoding="utf-8"))
    names = {code for code in codes if _DOTTED.fullmatch(code)} - _OTHERS
    paths = {code for code in codes if _PATH.fullmatch(code)}

    assert sorted(name for name in names if not exists(name)) == []
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


# The fragments of the changelog.


FRAGMENTS = sorted((ROOT / "docs" / "changelog.d").glob("*.md"))
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\.(added|changed|fixed|removed)\.md")


@pytest.mark.parametrize(
    "fragment", [each for each in FRAGMENTS if each.name != "README.md"], ids=lambda fragment: fragment.name
)
def test_fragments_are_one_paragraph_with_a_known_kind(fragment: Path) -> None:
    """A file with another kind would be missing from the changelog."""
    assert _NAME.fullmatch(fragment.name)
    text = fragment.read_text(encoding="utf-8")
    assert text.strip()
    assert "\n\n" not in text


@pytest.mark.slow
def test_the_changelog_of_a_release_has_every_fragment(tmp_path: Path) -> None:
    """`make changelog VERSION=1.0.0` writes one entry per fragment below the version, by kind."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs" / "changelog.d", tmp_path / "docs" / "changelog.d")
    command = [Path(sys.executable).with_name("towncrier"), "build", "--keep", "--version", "1.0.0", "--dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    changelog = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    before, version, later = changelog.partition("\n## 1.0.0 (")
    after, _, _ = later.partition("\n## ")
    assert before.startswith("# Changelog\n")
    assert version
    assert after.count("\n- ") == len(FRAGMENTS) - 1
    kinds = [line.removeprefix("### ") for line in after.splitlines() if line.startswith("### ")]
    assert kinds == [kind for kind in ("Added", "Changed", "Fixed", "Removed") if kind in kinds]


# The code in the guides runs, and its tests pass.


DOCS = ROOT / "docs"
_HOWTO_APPLICATION_BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guide", "tests"),
    [
        ("howto/write-an-application.md", 5),
        ("howto/streaming.md", 1),
        ("howto/dask.md", 10),
        ("howto/write-a-runner.md", 4),
        ("reference/python.md", 3),
        ("tutorial/python.md", 4),
    ],
)
def test_the_tests_in_the_guide_pass(guide: str, tests: int, tmp_path: Path) -> None:
    """Every Python block is a file, with its name in the first line; the tests in these files pass."""
    text = (DOCS / guide).read_text(encoding="utf-8")
    blocks = _HOWTO_APPLICATION_BLOCK.findall(text)
    for name, code in blocks:
        (tmp_path / name).write_text(code)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        # Plugins that only our own tests use take longer to load than pytest.
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(blocks) == text.count("```python")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout


# The documentation site.


@pytest.mark.slow
def test_the_site_has_every_page_and_an_anchor_for_each_code(tmp_path: Path) -> None:
    """Sphinx warns of nothing: links lead to pages and headings that exist, and every page is in the navigation.

    The theme is a plain one, which is built in half of the time.
    """
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-D",
        "html_theme=basic",
        "-c",
        ROOT / "docs",
    ]
    done = subprocess.run([*command, ROOT, tmp_path], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "docs" / "reference" / "problems.html").read_text(encoding="utf-8")
    kinds = [LostChunksError, LostContentsError, *(getattr(errors, name) for name in errors.__all__)]
    codes = {kind.code for kind in kinds if isinstance(kind, type) and issubclass(kind, errors.DropflowError)}
    assert [code for code in sorted({*codes, *CODES} - {"DF000"}) if f'id="{code}"' not in page] == []
