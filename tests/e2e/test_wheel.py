"""What is published: the archive of the sources, and the wheel in an environment with nothing but what it requires."""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import Request, urlopen

import pytest

from dropflow.version import __version__
from tests.processes import Running, required_packages, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
_MAX_WHEEL = 2_500_000
_MAX_INSTALLED = 140_000_000
_ASSET = re.compile(r"""(?:src|href)="([^"#?]+\.(?:js|css|svg))"|(?:from|import) "([^"]+\.js)";""")


def _build(into: Path, *options: str) -> dict[str, Path]:
    """Build both archives, or those of the options, with the build tools of this environment; return them by ending."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", into, *options, ROOT]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"SOURCE_DATE_EPOCH": "1764547200"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.suffix: path for path in into.iterdir()}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what it requires; the latter is linked, not copied."""
    wheel = _build(tmp_path_factory.mktemp("dist"), "--wheel")[".whl"]
    assert wheel.stat().st_size < _MAX_WHEEL
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    found = folder / "bin" / "python"
    site = next(folder.glob("lib/python*/site-packages"))
    size = 0
    for name in required_packages("dropflow"):
        files = [file for file in distribution(name).files or () if file.parts[0] not in ("..", "__pycache__")]
        size += sum(Path(str(file.locate())).stat().st_size for file in files if Path(str(file.locate())).is_file())
        for top in {file.parts[0] for file in files}:
            (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    assert size < _MAX_INSTALLED
    command = [sys.executable, "-m", "pip", "--python", found, "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run(command, check=True)
    return found


@pytest.fixture(scope="module")
def up(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A cluster of the wheel."""
    with Running(tmp_path_factory.mktemp("up"), "up", "--nodes", 1, "--port", 0, python=python) as running:
        yield running


@pytest.mark.exhaustive
def test_two_builds_are_equal(tmp_path: Path) -> None:
    """Who builds the same sources gets the same bytes, so that a published archive can be checked."""
    first, second = _build(tmp_path / "first"), _build(tmp_path / "second")

    assert sorted(first) == sorted(second) == [".gz", ".whl"]
    for suffix, path in first.items():
        assert (path.name, path.read_bytes()) == (second[suffix].name, second[suffix].read_bytes())


def test_a_wheel_has_manual_pages_and_completion(python: Path) -> None:
    """Each command has a page, and each of three shells a script."""
    share = python.parents[1] / "share"

    assert "dropflow\\-run \\- Run GRAPH on this machine." in (share / "man/man1/dropflow-run.1").read_text()
    assert (share / "man/man1/dropflow-launch-slurm.1").is_file()
    assert "complete -o nosort -F _dropflow_completion dropflow" in (
        share / "bash-completion/completions/dropflow"
    ).read_text(encoding="utf-8")
    assert (share / "zsh/site-functions/_dropflow").is_file()
    assert (share / "fish/vendor_completions.d/dropflow.fish").is_file()


def test_the_everyday_commands_of_an_installed_wheel(python: Path, up: Running, tmp_path: Path) -> None:
    """Without the checkout and without extras: version, run, submit, fetch and doctor."""
    graph = tmp_path / "mine.graph"
    graph.write_bytes((ROOT / "examples" / "hello.graph").read_bytes())
    version = run(tmp_path, "--version", python=python).stdout
    done = [
        run(up.home, *arguments, python=python)
        for arguments in (
            ("run", graph, "--keep", tmp_path / "ran"),
            ("submit", graph, "--name", "mine", "--wait"),
            ("fetch", "mine", "-o", tmp_path / "fetched"),
            ("doctor", "--output", "json"),
        )
    ]

    assert version.startswith(f"dropflow {__version__}, Python")
    assert [one.stderr for one in done if one.returncode] == []
    checked = json.loads(done[-1].stdout)
    assert (checked["findings"], "dask" in checked["absent"]) == ([], True)
    files = [sorted((tmp_path / name / "files").rglob("*")) for name in ("ran", "fetched")]
    assert (
        [path.read_bytes() for path in files[0] if path.is_file()]
        == [path.read_bytes() for path in files[1] if path.is_file()]
        != []
    )


def test_pages_of_an_installed_wheel_have_their_assets(python: Path, up: Running) -> None:
    """Every script, style and picture that a page of the translator or of a session names is in the wheel."""
    run(up.home, "submit", ROOT / "examples" / "hello.graph", "--name", "shown", "--wait", python=python)

    def load(url: str) -> str:
        with urlopen(Request(url, headers={"Authorization": f"Bearer {up.ready['token']}"})) as answer:  # noqa: S310
            text: str = answer.read().decode()
        return text

    master, translator = up.ready["master"], up.ready["translator"]
    pages = [f"{master}/sessions/shown{tab}" for tab in ("", "/graph", "/timeline", "/results", "/log")]
    waiting, seen = [f"{translator}/", f"{master}/", f"{master}/nodes", *pages], set[str]()
    while waiting:
        url = waiting.pop()
        if url not in seen:
            seen.add(url)
            waiting += [urljoin(url, "".join(names)) for names in _ASSET.findall(load(url))]

    assert len(seen) > len(pages) + 20
