"""The documents: their commands and code run, names and links exist, and the site and changelog are built."""

import ast
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest

from dropflow import errors
from dropflow.api.operations import OPERATIONS
from dropflow.cli.main import commands
from dropflow.dask.lost_chunks import LostChunksError
from dropflow.dask.persist import LostContentsError
from dropflow.web.tickets import TICKET
from palettes.build import components
from tests.docs.documents import DOCUMENTS, ROOT, exists
from tests.processes import default_ports
from translator.problem_codes import CODES

_FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^ *```(.*)\n((?:.*\n)*?) *```$", re.MULTILINE)
_COMMAND = re.compile(r"\w*\$ |(dropflow|pip|python3?|make|curl|ssh|scp|export|sudo) (?!=)")
_ELSEWHERE = {
    "slurm.md": "shell",
    "cluster.md": "shell",
    "three-machines.md": "shell",
    "ssh.md": "shell",
    "rest-jobs.md": "sh",
}
"""The language of blocks that other tests run, with what they need."""
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_UP = "dropflow up --nodes 2 --workers 1 --port 0   # in a terminal of its own"
_SUBMIT = "dropflow submit examples/error-threshold.graph --output quiet --name SESSION"
_CANCELLED = [
    f"""{_SUBMIT} --set Measure.func_code='def measure(input):
    import pathlib, time
    while not (pathlib.Path.home() / "go").exists():
        time.sleep(0.1)
    return 100.0'""",
    "dropflow cancel SESSION --grace 0",
]
"""A session whose applications wait for a file, and its end."""
_PIPELINE = """printf '%s' 'from dropflow import Graph, app

@app
def Rms(values: list[int]) -> int:
    return sum(values.none)

with Graph("pipeline") as graph:
    Rms([1, 2]).save("total.json")
graph.save("pipeline.graph")
' >pipeline.py && python pipeline.py"""
_REPOSITORY = """
git init -q -b main repository && cd repository && mkdir pipelines && cp ../examples/hello.graph pipelines/imaging.graph
cp ../examples/hello.graph imaging.graph && git add . && git config --global user.email a@b.c
git config --global user.name A && git commit -qm A && git tag v1.2
for address in https://github.com/ORG/REPO ssh://git@gitlab.example.org/ORG/REPO file:///data/graphs; do
    git config --global --add url.file://$PWD.insteadOf $address
done"""
_PREPARED: dict[str, dict[str, list[str]]] = {
    "explanation/planning.md": {"dropflow submit": [_UP, "cp examples/imaging.graph graph.graph"]},
    "howto/add-drain-and-rebalance.md": {"": [_UP.replace("--nodes 2", "--nodes 3"), _CANCELLED[0]]},
    "howto/after-a-crash.md": {
        "dropflow resume SESSION --wait": [_UP, *_CANCELLED, "touch go"],
        "dropflow resume SESSION --without": ["dropflow delete SESSION; rm go", *_CANCELLED],
        "dropflow retry RUN": [
            _PIPELINE,
            "dropflow run pipeline.graph --keep RUN   # exits with 1",
            "sed -i s/.none// pipeline.py",
        ],
    },
    "howto/cancel-and-pause.md": {
        "": [_UP, _CANCELLED[0]],
        "dropflow cancel SESSION 'Measure 3'": ["dropflow delete SESSION", _CANCELLED[0]],
        "dropflow run": ["cp examples/hello.graph graph.graph"],
    },
    "howto/other-engines.md": {
        "": [
            "mkdir shared; dropflow unroll examples/hello.graph -o graph.dfg",
            "dask scheduler --no-dashboard   # in a terminal of its own",
            "dask worker tcp://127.0.0.1:8786 --no-dashboard   # in a terminal of its own",
        ],
    },
    "howto/provenance.md": {
        "dropflow explain FILE": [
            "dropflow keys create",
            _UP,
            "dropflow submit examples/hello.graph --name SESSION --wait",
            "dropflow run examples/hello.graph --keep RUN",
            "mkdir DIR; cp -r RUN DIR; cp RUN/files/* FILE",
        ],
        "dropflow fetch": ["rm -r DIR"],
    },
    "howto/replay.md": {
        "dropflow run pipeline.graph": [_PIPELINE],
        "dropflow retry": [
            "dropflow run pipeline.graph --keep run   # exits with 1",
            "EDITOR='sed -i s/.none//' dropflow replay run Rms --edit",
        ],
    },
    "howto/repositories.md": {
        "": [_UP, _REPOSITORY],
        "dropflow explain": ["dropflow submit git+file:///data/graphs#imaging.graph --name SESSION --wait"],
    },
    "howto/results-and-logs.md": {
        "curl -f -C": [
            'curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8002/api/v1/sessions/imaging/results >all',
            "export DROP=$(grep -o 'imaging_[^\"/]*' all | head -n 1)",
        ],
    },
    "howto/translator-service.md": {
        "": ["dropflow master   # in a terminal of its own", "cp examples/hello.graph my.graph"],
    },
    "howto/users.md": {
        "export": [_UP, "dropflow unroll examples/hello.graph -o graph.dfg"],
        "dropflow keys revoke": ["export DROPFLOW_KEY= DROPFLOW_URL="],
    },
    "reference/machines.md": {
        "dropflow partition graph.graph": [_UP, "cp examples/imaging.graph graph.graph"],
    },
}
"""Commands of a test before the first one of a page that begins so: they make what is the reader's.

The hosts of the pages are this one, its island and master those of `up`, and `/shared` is below the current directory.
"""
_MANAGERS = {"8001": "island", "8002": "master"}
_ADDRESS = re.compile(r"(?<=://)(?:head|alpha|island|master|127\.0\.0\.1):(\d+)")


def _commands(document: Path, kind: str = "console") -> list[str]:
    """Return the lines that start with ``$ `` in the blocks of a document with commands."""
    blocks = [body for found, body in _FENCE.findall(document.read_text(encoding="utf-8")) if found == kind]
    return [line[2:] for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]


def _name(document: Path) -> str:
    return str(document.relative_to(ROOT))


_LONG = ("examples/README.md", "docs/howto/drill.md", "docs/howto/eagle.md", "docs/howto/watch-sessions.md")
"""Pages whose commands take 4 to 9 s of processor time each."""


def _marks(document: Path) -> Sequence[pytest.MarkDecorator]:
    """Mark a page before which something is made, such as a cluster, and long ones: other runs only parse them."""
    is_at_night = _name(document).removeprefix("docs/") in _PREPARED or _name(document) in _LONG
    # Pages with a cluster wait for each other, also for those of other runs of the tests: each uses the default ports.
    return [pytest.mark.exhaustive, pytest.mark.timeout(900)] if is_at_night else []


_WITH_COMMANDS = [
    pytest.param(document, id=_name(document), marks=_marks(document)) for document in DOCUMENTS if _commands(document)
]


@pytest.mark.slow
@pytest.mark.parametrize("document", _WITH_COMMANDS)
def test_commands_of_the_documents_run(document: Path, tmp_path: Path) -> None:
    """Each document's console commands run, one after another, in a directory that holds only `examples/`.

    The status of a command that fails is in a comment: ``$ command   # exits with 2``. With the comment ``# in a
    terminal of its own`` a command stays until the others have run. A Python block that begins with the name of a file
    in a comment is that file.
    """
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, code in _FILE.findall(document.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(code, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    variables = {"PATH": path, "HOME": str(tmp_path), "COLUMNS": "120"}
    prepared = dict(_PREPARED.get(_name(document).removeprefix("docs/"), {}))
    steps = prepared.pop("", [])
    for command in _commands(document):
        steps += [step for begin in list(prepared) if command.startswith(begin) for step in prepared.pop(begin)]
        steps.append(command)
    assert prepared == {}
    addresses: dict[str, str] = {}
    with ExitStack() as stack:
        if any("# in a terminal of its own" in step and "--port 0" not in step for step in steps):
            stack.enter_context(default_ports())
        for written in steps:
            step = _ADDRESS.sub(lambda found: addresses.get(found[1], f"127.0.0.1:{found[1]}"), written)
            step = step.replace("/shared/", "shared/")
            surroundings = {"cwd": tmp_path, "env": variables}
            if "# in a terminal of its own" in step:
                ready = stack.enter_context(_staying(step, surroundings))
                variables["TOKEN"] = ready.get("token", "")
                if ready.get("role") == "up":
                    addresses.update({port: urlsplit(ready[name]).netloc for port, name in _MANAGERS.items()})
                continue
            expected = re.search(r"# exits with (\d+)", step)
            is_kept = step.startswith("export ")
            line = ["/bin/bash", "-c", f"{step}\nenv -0" if is_kept else step]
            done = subprocess.run(line, capture_output=True, text=True, check=False, **surroundings)
            wanted = int(expected[1]) if expected else 0

            assert done.returncode == wanted, f"{step}\n{done.stdout}\n{done.stderr}"
            if is_kept:
                variables |= dict(each.split("=", 1) for each in done.stdout.split("\0") if each)


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
def _staying(command: str, surroundings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run a command that stays, from its ready line until the other commands are done, and yield that line."""
    line = ["/bin/bash", "-c", f"exec {command}"]
    errors = surroundings["cwd"] / "staying.err"
    with (
        errors.open("w") as log,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True, **surroundings) as process,
    ):
        try:
            assert process.stdout is not None
            if command.startswith("dask "):  # prints nothing to standard output
                yield {}
                return
            shown = process.stdout.readline()
            assert shown, f"{command}\n{errors.read_text()}"
            ready: dict[str, Any] = json.loads(shown)
            assert ready["ready"] is True, command
            yield ready
        finally:
            process.terminate()
            process.wait(120)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_between_documents_exist(document: Path) -> None:
    """Every relative link of a document points at a file of the repository."""
    links = _LINK.findall(document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]

    assert [link for link in local if not (document.parent / link).exists()] == []


# Every other command has names and options that exist.


_SPAN = re.compile(r"`(dropflow [^`]+)`")
_OTHER_WORDS = {"dropflow user key, version 1:NAME@SECONDS", "dropflow waits", "dropflow launch SYSTEM DIRECTORY"}
"""What is not a command line of dropflow, and one with a placeholder for a part of its name."""
_SHELL_WORDS = re.compile(r"[|&;()]+")


def _command_lines(document: Path) -> Iterator[str]:
    """Yield the command lines in blocks, and those in the text, which may be without arguments."""
    text = document.read_text(encoding="utf-8")
    for kind, body in _FENCE.findall(text):
        for line in body.replace("\\\n", " ").splitlines() if re.match("console|shell|sh$", kind) else ():
            if prompt := re.match(r"\w*\$ +", line):
                yield line[prompt.end() :]
            elif kind == "sh":
                yield line
    yield from (" ".join(span.split()) for span in _SPAN.findall(_FENCE.sub("", text)))


def _words(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line of the shell, without redirections and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    found: list[str] = []
    for word in lexer:
        if _SHELL_WORDS.fullmatch(word):
            yield found
            found = []
        elif not re.fullmatch(r"[<>]+", word):
            found.append(word)
    yield found


def _parse(words: list[str]) -> None:
    """Parse the arguments of ``dropflow`` as it does, and raise if a name or an option does not exist."""
    command: click.Command = commands
    context = click.Context(command)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context, **found.context_settings)
    try:
        values, _, _ = command.make_parser(context).parse_args(words)
    except click.BadOptionUsage as error:  # an option that a text names without its value
        if "requires an argument" not in error.message:
            raise
        return
    for parameter in command.get_params(context):
        value = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice) and isinstance(value, str) and not value.isupper():
            parameter.type.convert(value, parameter, context)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_commands_of_the_documents_have_options_that_exist(document: Path) -> None:
    """Every command line is parsed, also one that cannot run; ``pip`` knows the extra, and ``make`` the target."""
    extras = set(metadata("dropflow").get_all("Provides-Extra") or ())
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in set(_command_lines(document)) - _OTHER_WORDS:
        for words in _words(line):
            place = [at for at, word in enumerate(words) if re.fullmatch(r".*/bin/dropflow|dropflow", word)]
            if place and (words[0] in ("dropflow", "podman-compose") or "/" in words[place[0]]):
                try:
                    _parse(words[place[0] + 1 :])
                except click.UsageError as error:
                    pytest.fail(f"{line}: {error.format_message()}")
            if words[:2] == ["pip", "install"]:
                assert {extra for word in words for extra in re.findall(r"\[(.*)\]", word)} <= extras, line
            if words[:1] == ["make"]:
                assert words[1] in targets, line


# Names of modules, classes and files in the documents exist.


_CODE = re.compile(r"`([^`\n]+)`")
_DOTTED = re.compile(r"(?:dropflow|managers|translator|palettes)(?:\.\w+)+")
_PATH = re.compile(r"(?:dropflow|managers|translator|palettes|tests|docs|examples|benchmarks)/[\w./-]*")
# Class names in graphs, and a file of a user.
_OTHERS = {"dropflow.apps.GroupByApp", "translator.py"}


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
        ("howto/write-an-application.md", 4),
        ("howto/streaming.md", 1),
        ("howto/dask.md", 5),
        ("howto/write-a-runner.md", 4),
        ("reference/logical-graph-formats.md", 1),
        ("reference/python.md", 3),
        ("tutorial/python.md", 5),
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


@pytest.mark.parametrize(
    "page", sorted({*DOCS.glob("howto/*.md"), *DOCS.glob("tutorial/*.md")}), ids=lambda page: page.stem
)
def test_code_in_a_guide_imports_only_public_names(page: Path) -> None:
    """What a guide imports from dropflow is in the `__all__` of `dropflow.errors` or of a package in the reference."""
    reference = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    listed = [*re.findall(r"automodule:: (\S+)", reference), "dropflow.errors"]
    internal = []
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dropflow":
                public = importlib.import_module(node.module).__all__ if node.module in listed else []
                internal += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in public]
    assert internal == []


# The documentation site.


def _problem_codes() -> list[str]:
    """Return the codes of findings about graphs, and those of errors."""
    kinds = [LostChunksError, LostContentsError, *vars(errors).values()]
    codes = {kind.code for kind in kinds if isinstance(kind, type) and issubclass(kind, errors.DropflowError)}
    return [*CODES, *sorted(codes - {"DF000"})]


def test_the_advice_is_for_codes_that_exist_in_their_order() -> None:
    """Each row of the tables of advice is for one code, in the order of the codes."""
    page = (ROOT / "docs" / "reference" / "problems.md").read_text(encoding="utf-8")
    advised = re.findall(r"^\| `([A-Z]{2}\d{3})` \|", page, re.MULTILINE)

    assert advised == [code for code in _problem_codes() if code in advised]


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
    reference = tmp_path / "docs" / "reference"
    page = (reference / "problems.html").read_text(encoding="utf-8")
    assert [code for code in _problem_codes() if f'id="{code}"' not in page] == []
    page = (reference / "operations.html").read_text(encoding="utf-8")
    assert [one.path for one in (*OPERATIONS, TICKET) if f"{one.method} {one.path}<" not in page] == []
    page = (reference / "cli.html").read_text(encoding="utf-8")
    assert [name for name in commands.commands if f'id="dropflow-{name}"' not in page] == []
    page = (reference / "components.html").read_text(encoding="utf-8")
    assert [component.name for component in components() if f'id="{component.name.lower()}"' not in page] == []
