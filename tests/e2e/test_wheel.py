"""What is published: the archive of the sources, the wheel, and the image of managers."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import Request, urlopen

import pytest

from dropflow.cli.main import commands, load_command
from dropflow.version import __version__
from tests.processes import Running, required_packages, run

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


@pytest.mark.slow
@pytest.mark.exhaustive
def test_two_builds_are_equal(tmp_path: Path) -> None:
    """Who builds the same sources gets the same bytes, so that a published archive can be checked."""
    first, second = _build(tmp_path / "first"), _build(tmp_path / "second")

    assert sorted(first) == sorted(second) == [".gz", ".whl"]
    for suffix, path in first.items():
        assert (path.name, path.read_bytes()) == (second[suffix].name, second[suffix].read_bytes())


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


# The image of managers as a cluster in podman, and the chart that runs it on Kubernetes.


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_image_runs_a_cluster_without_root_or_writable_files() -> None:
    """Two nodes and an island get healthy, finish a session, and end with status 0 when they are stopped."""
    image = os.environ.get("DROPFLOW_IMAGE", "")
    podman = shlex.split(os.environ.get("DROPFLOW_PODMAN", "podman"))
    if not image or shutil.which(podman[0]) is None:
        pytest.skip("DROPFLOW_IMAGE does not name an image that was built from Containerfile, or there is no podman")
    tag = f"dropflow-test-{os.getpid()}"
    limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=2000:2000"]
    confined = [*limits, "--network", "host", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "all"]  # noqa: S108
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        ports = [str(each.getsockname()[1]) for each in (one, two, three)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    managers = {
        f"{tag}-1": ["node", "--name", "node-1", "--port", ports[0], "--links-port", "0", "--workers", "1"],
        f"{tag}-2": ["node", "--name", "node-2", "--port", ports[1], "--links-port", "0", "--workers", "1"],
        f"{tag}-3": ["island", "--port", ports[2], "--links-port", "0", "--nodes", ",".join(urls[:2])],
    }

    def run(*words: str, graph: bytes = b"", status: int = 0) -> str:
        done = subprocess.run([*podman, *words], input=graph, capture_output=True, timeout=120, check=False)
        assert done.returncode == status, done.stderr.decode()
        return done.stdout.decode()

    try:
        run("run", "--rm", *confined, "-v", f"{tag}:/key", image, "keys", "create")
        for name, command in managers.items():
            run("run", "-d", "--name", name, *confined, "-v", f"{tag}:/key:ro", "-v", f"{name}:/data", image, *command)
        submit = ["dropflow", "submit", "-", "--wait", "--to", urls[2]]
        ready = "until python3 -c \"from urllib.request import urlopen; urlopen('{}/ready')\" 2>&-; do sleep 0.2; done"
        for name, url in zip(managers, urls, strict=True):
            run("exec", name, "timeout", "60", "sh", "-c", ready.format(url))
            run("healthcheck", "run", name)
        answer = run("exec", "-i", f"{tag}-3", *submit, graph=(ROOT / "examples/estimate-pi.graph").read_bytes())
        user = run("exec", f"{tag}-1", "id", "-u")
        run("exec", f"{tag}-1", "touch", "/opt/file", status=1)
        for name in managers:
            run("stop", "-t", "40", name)
        ends = [run("inspect", "-f", "{{.State.ExitCode}}", name).strip() for name in managers]
    finally:
        subprocess.run([*podman, "rm", "-f", "-i", *managers], capture_output=True, timeout=120, check=False)
        subprocess.run([*podman, "volume", "rm", "-f", tag, *managers], capture_output=True, timeout=60, check=False)

    assert "FINISHED  31 drops" in answer
    assert user.strip() == "10001"
    assert ends == ["0", "0", "0"]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_compose_file_starts_a_cluster() -> None:
    """As the page on images says: island, two nodes and a translator start with one key, and finish a session."""
    compose = shlex.split(os.environ.get("DROPFLOW_COMPOSE", "podman-compose"))
    if not os.environ.get("DROPFLOW_IMAGE") or shutil.which(compose[0]) is None:
        pytest.skip("DROPFLOW_IMAGE does not name an image that was built from Containerfile, or no podman-compose")
    island = ["exec", "-T", "island", "timeout", "300", "dropflow"]
    graph = (ROOT / "examples/estimate-pi.graph").read_bytes()

    def run(*words: str) -> str:
        command = [*compose, "-p", f"dropflow-test-{os.getpid()}", *words]
        done = subprocess.run(command, input=graph, capture_output=True, timeout=400, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    try:
        run("up", "-d")
        until = "until dropflow nodes --to http://island:8001 --output json | grep -c alive; do sleep 0.5; done"
        run("exec", "-T", "island", "timeout", "120", "sh", "-c", until)
        answer = run(*island, "submit", "-", "--wait", "--to", "http://island:8001")
        nodes = json.loads(run(*island, "nodes", "--to", "http://island:8001", "--output", "json"))["nodes"]
    finally:
        run("down", "-v")

    assert "FINISHED  31 drops" in answer
    assert sorted(node["name"] for node in nodes) == ["node-1", "node-2"]


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "more"), [(2, ()), (3, ("ingress.enabled=false", "storageClass=fast"))])
def test_the_chart_of_kubernetes_is_right(nodes: int, more: tuple[str, ...]) -> None:
    """Helm renders what Kubernetes' schemas permit; arguments and probes are those of the managers."""
    helm = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if helm is None:
        pytest.skip("there is no helm: make exhaustive brings it")
    chart = ROOT / "examples" / "kubernetes"
    values = ["--set", ",".join((f"node.replicas={nodes}", *more))]
    subprocess.run([helm, "lint", "--strict", chart, *values], check=True)
    rendered = subprocess.run([helm, "template", "sky", chart, *values], capture_output=True, text=True, check=True)
    yaml = pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all(rendered.stdout))
    kinds = Counter(document["kind"] for document in documents)
    sets = {
        document["metadata"]["name"]: document["spec"] for document in documents if document["kind"] == "StatefulSet"
    }
    services = {
        document["metadata"]["name"]: document["spec"] for document in documents if document["kind"] == "Service"
    }
    whole = commands.make_context("dropflow", ["node"])
    for name, found in sets.items():
        role = name.removeprefix("sky-")
        pod = found["template"]
        (container,) = pod["spec"]["containers"]
        words = [word.replace("$(POD)", f"{name}-0") for word in container["args"]]
        given = load_command(role).make_context(role, words[1:], parent=whole).params
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}

        assert (words[0], given["port"], given.get("links_port")) == (role, ports["http"], ports.get("links"))
        assert {each["name"]: each["port"] for each in services[name]["ports"]} == ports
        assert given["advertise"] == (f"{name}-0.{name}" if role == "node" else name)
        assert container["image"].endswith(f"/dropflow:{__version__}")
        assert services[name]["selector"].items() <= pod["metadata"]["labels"].items()
        if role == "island":
            assert list(given["nodes"]) == [f"http://sky-node-{one}.sky-node:8000" for one in range(nodes)]
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        assert grace > given.get("drain_seconds", 0)

    assert sorted(sets) == sorted(services) == ["sky-island", "sky-node", "sky-translator"]
    assert sets["sky-node"]["replicas"] == nodes
    assert (kinds["NetworkPolicy"], kinds["PodDisruptionBudget"], kinds["Ingress"]) == (
        (1, 1, 0) if more else (2, 1, 1)
    )
    validate = pytest.importorskip(
        "kubernetes_validate", reason="make exhaustive installs kubernetes-validate"
    ).validate
    assert [validate(document, "1.32", strict=True) for document in documents] == ["1.32"] * len(documents)
