"""Commands in containers: with podman and an image of busybox, and with a stand-in for apptainer."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dropflow.apps.container import ContainerApp
from dropflow.apps.container_engine import ENGINE_VARIABLE, container_engine, pull_images, read_record
from dropflow.apps.needs import end_containers, prepare_containers, refuse_need
from dropflow.clock import SystemClock
from dropflow.errors import BadParameterError, MissingDependencyError
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import SessionState
from dropflow.testing.attempts import Attempted, Given, try_app
from tests.drawn_graphs import app, data, draw
from tests.e2e.cluster import PATIENT, Cluster, content, finished, placed, submit
from translator.pipeline import translate

BASH = "dlg.apps.bash_shell_app.BashShellApp"
CONTAINER = "dlg.apps.dockerapp.DockerApp"
IMAGE = "localhost/dropflow-test:1"
_CONF = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
"""


@pytest.fixture(scope="module")
def podman() -> Iterator[str]:
    """The command of podman with a store of its own, in which there is an image of busybox."""
    busybox = shutil.which("busybox")
    if not shutil.which("podman") or not busybox or b"statically" not in _kind(busybox):
        pytest.skip("podman or busybox-static is not installed")
    home = Path(tempfile.mkdtemp(prefix="dfpod", dir="/tmp"))  # podman takes no runroot over 50 characters
    (home / "containers.conf").write_text(_CONF, encoding="utf-8")
    runtime = "runc" if shutil.which("runc") else "crun"
    command = f"podman --root {home}/root --runroot {home}/run --storage-driver vfs --runtime {runtime}"
    command += " --cgroup-manager cgroupfs"
    with tarfile.open(home / "image.tar", "w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "cat", "echo", "id", "sleep", "ls", "touch", "head", "tail", "env", "wc", "cp", "mkdir"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for name in ("tmp", "etc", "proc", "dev", "sys", "var"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(folder)
    variables = {
        "CONTAINERS_CONF": str(home / "containers.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(home / "registries.conf"),
        ENGINE_VARIABLE: command,
    }
    (home / "registries.conf").write_text('[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n', encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        made = subprocess.run([*command.split(), "import", home / "image.tar", IMAGE], capture_output=True, check=False)
        ran = subprocess.run(
            [*command.split(), "run", "--rm", IMAGE, "/bin/echo", "up"], capture_output=True, check=False
        )
        if made.returncode or ran.returncode:
            pytest.skip(f"podman cannot run containers here: {(made.stderr + ran.stderr)[-300:].decode()}")
        subprocess.run([*command.split(), "rm", "--all", "--force"], capture_output=True, check=False)
        yield command
        subprocess.run([*command.split(), "rm", "--all", "--force"], capture_output=True, check=False)
    shutil.rmtree(home, ignore_errors=True)


def _kind(program: str) -> bytes:
    """Return what file(1) would say: whether a program has no interpreter."""
    head = Path(program).read_bytes()[:4096]
    return b"dynamically" if b"/ld-linux" in head or b"ld-musl" in head else b"statically"


def _field(name: str, value: Any, **more: Any) -> Argument:
    return Argument(name=name, value=value, parameter_type="ComponentParameter", **more)


def _run(directory: Path, command: str, *, inputs: Any = (), outputs: Any = ("out",), **fields: Any) -> Attempted:
    given = [each if isinstance(each, Given) else Given(*each) for each in inputs]
    arguments = [_field("image", fields.pop("image", IMAGE)), _field("command", command)]
    arguments += [_field(name, value) for name, value in fields.items()]
    return try_app(CONTAINER, directory, inputs=given, outputs=outputs, fields=arguments)


def _template(**fields: Any) -> Template:
    arguments = tuple(_field(name, value) for name, value in fields.items())
    return Template(key="k", name="n", kind=Kind.APP, component=CONTAINER, arguments=arguments)


def _containers(podman: str) -> list[str]:
    listed = subprocess.run([*podman.split(), "ps", "--all", "--quiet"], capture_output=True, check=True)
    return listed.stdout.decode().split()


@pytest.mark.slow
def test_a_command_in_a_container_reads_inputs_and_writes_outputs(podman: str, tmp_path: Path) -> None:
    """Files, data in memory and fields appear as for commands outside; the container is removed at its end."""
    file = tmp_path / "a, file:1"
    file.write_text("from a file\n")

    got = _run(tmp_path, "cat {f} > {out}; echo {v} >> {out}; id -u >> {out}", inputs=[("f", file), ("v", "value")])

    assert got.contents == [f"from a file\nvalue\n{os.getuid()}\n".encode()]
    assert not _containers(podman)


@pytest.mark.slow
@pytest.mark.usefixtures("podman")
def test_a_container_cannot_change_its_inputs_or_reach_a_network(tmp_path: Path) -> None:
    """Inputs are read-only, and there is only the loopback device, unless the node asks for a network."""
    file = tmp_path / "data"
    file.write_text("kept")

    got = _run(tmp_path, "touch {f} || echo read-only > {out}; ls /sys/class/net >> {out}", inputs=[("f", file)])

    assert got.contents == [b"read-only\nlo\n"]
    assert file.read_text() == "kept"


@pytest.mark.slow
@pytest.mark.usefixtures("podman")
def test_variables_bindings_and_the_working_directory_of_a_container(tmp_path: Path) -> None:
    """Variables may name data; bindings are mounted where the node says; relative paths are in a private directory."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "sky").write_text("model")

    got = _run(
        tmp_path,
        "echo $WHERE > x; cat x /model/sky $DATA > {out}; touch /model/y || echo refused >> {out}",
        inputs=[("f", Path(shared / "sky"))],
        env='{"WHERE": "here", "DATA": "%i0"}',
        additionalBindings=f"{shared}:/model:ro",
    )

    assert got.contents == [b"here\nmodelmodelrefused\n"]
    assert not list(tmp_path.rglob("x"))


@pytest.mark.slow
def test_a_failed_container_has_its_status_and_output(podman: str, tmp_path: Path) -> None:
    """An exit status other than 0 fails the drop; what the command wrote is in the drop's log."""
    got = _run(tmp_path, "echo broken lens; exit 3")

    assert "ended with status 3" in got.failure.text
    assert "broken lens" in got.log
    assert not _containers(podman)


@pytest.mark.slow
@pytest.mark.usefixtures("podman")
@pytest.mark.parametrize("component", [CONTAINER, BASH])
def test_a_disk_that_is_full_is_named(small_disk: Path, component: str) -> None:
    """The error has the directory and what is left there; no part of the output stays."""
    command = _field("command", "head -c 9000000 /dev/zero > {out}")
    got = try_app(component, small_disk, outputs=("out",), fields=[_field("image", IMAGE), command])

    assert got.failure.code == "DF105"
    assert "0.0 MB left on the file system of" in got.failure.hint
    assert str(small_disk) in got.failure.hint
    assert [path for path in small_disk.rglob("*") if path.is_file() and path.stat().st_size > 1 << 20] == []


@pytest.mark.slow
@pytest.mark.usefixtures("podman")
def test_an_image_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    """Nothing runs, and the error has the whole name of the image."""
    got = _run(tmp_path, "true", image="localhost/absent", docker_tag="2.1")

    assert got.failure.code == "DF106"
    assert "cannot pull the image 'localhost/absent:2.1': the drop's log has its answer" in got.failure.text
    assert [handle for handle in got.handles if handle is not None] == []


class _Registry(http.server.BaseHTTPRequestHandler):
    """Serves one image, which ``podman save`` has written to the directory `folder` of the server, under any tag."""

    def do_GET(self) -> None:
        server: Any = self.server
        kind, _, name = self.path.rpartition("/")
        file = "manifest.json" if kind.endswith("/manifests") else name.removeprefix("sha256:")
        server.asked.append(self.path)
        if "absent" in self.path:
            body = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "no image of that name"}]}'
        else:
            body = b"{}" if self.path == "/v2/" else (server.folder / file).read_bytes()
        self.send_response(404 if "absent" in self.path else 200)
        is_manifest = file == "manifest.json" and "absent" not in self.path
        self.send_header("Content-Type", json.loads(body)["mediaType"] if is_manifest else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command == "GET" else b"")

    do_HEAD = do_GET  # noqa: N815 - as the server wants it

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def registry(podman: str, tmp_path: Path) -> Iterator[Any]:
    """A server with the image of this module, and the requests that it got."""
    folder = tmp_path / "saved"
    saved = [*podman.split(), "save", "--format", "docker-dir", "-o", str(folder), IMAGE]
    subprocess.run(saved, capture_output=True, check=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        found: Any = server
        found.folder, found.asked = folder, []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_images_are_pulled_once_before_a_session_begins_and_stay_the_same(podman: str, registry: Any) -> None:
    """Two nodes with one image pull it once, with progress. A retry runs the image with the digest of the first run."""
    home, image = registry.folder.parent, f"127.0.0.1:{registry.server_port}/sky:1"
    command = "echo ran > {out}; test -e /go/on"
    node = {"image": image, "additionalBindings": f"{home}:/go"}
    nodes = [app("A", CONTAINER, command=command, **node), app("B", CONTAINER, command=command, **node)]
    drawn = draw(home / "two.graph", [*nodes, data("out"), data("more")], "A > out > B > more")
    progress: list[str] = []

    first = local_run.run(translate(drawn).graph, home / "run", hooks=RunHooks(on_preparing=progress.append))

    pulled = [one for one in registry.asked if one.endswith("/manifests/1")]
    pinned = read_record(home / "run").images[image]
    assert first.status is SessionState.FAILED
    assert len(pulled) == 1
    assert any("Writing manifest" in line for line in progress)
    assert pinned.startswith(f"127.0.0.1:{registry.server_port}/sky@sha256:")
    assert f"image {image} is {pinned}" in first.notes

    subprocess.run([*podman.split(), "untag", image, image], capture_output=True, check=True)
    (home / "on").touch()
    second = local_run.retry(home / "run", (), RunOptions(containers="podman"))

    assert second.status is SessionState.FINISHED
    assert [one for one in registry.asked if one.endswith("/manifests/1")] == pulled


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "attempt"])
def test_an_image_without_a_registry_is_that_of_docker_io(
    podman: str, registry: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Graphs that were run with docker name images so, and podman alone refuses these names."""
    del podman
    home = registry.folder.parent
    mirror = f'[[registry]]\nprefix = "docker.io"\nlocation = "127.0.0.1:{registry.server_port}"\ninsecure = true\n'
    (home / "mirror.conf").write_text(mirror, encoding="utf-8")
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(home / "mirror.conf"))
    image, command = f"group/short-{kind}:1", "echo ran > {out}"
    drawn = draw(home / "short.graph", [app("A", CONTAINER, command=command, image=image), data("out")], "A > out")

    if kind == "run":
        assert local_run.run(translate(drawn).graph, home / "run").status is SessionState.FINISHED
    else:
        assert _run(home, command, image=image).contents == [b"ran\n"]
    assert f"/v2/group/short-{kind}/manifests/1" in registry.asked


@pytest.mark.slow
def test_results_are_reused_by_the_image_and_not_by_its_name(podman: str, tmp_path: Path) -> None:
    """Another tag of the same image runs nothing, and a tag that was moved runs. A forecast for nodes knows both."""
    options = RunOptions(reuse=True, store=str(tmp_path / "store"))

    def seen(tag: str) -> tuple[int, int, list[str]]:
        """Return how many applications would run on nodes, how many have run here, and why."""
        image = f"localhost/dropflow-reused:{tag}"
        nodes = [app("Given", BASH, run_in=image, command="echo > {output}"), data("out")]
        graph = translate(draw(tmp_path / "g.graph", nodes, "Given > out")).graph
        foreseen = local_run.foresee(graph, options, is_here=False)
        directory = tmp_path / f"{len([*tmp_path.iterdir()])}"
        result = local_run.run(
            graph, local_run.prepare_directory(directory), RunOptions(reuse=True, store=options.store)
        )
        return sum(one.runs for one in foreseen), result.computed, [why for one in foreseen for why in one.reasons]

    def tagged(image: str, tag: str) -> str:
        words = [*podman.split(), "tag", image, f"localhost/dropflow-reused:{tag}"]
        subprocess.run(words, capture_output=True, check=True)
        return tag

    other = "localhost/dropflow-other:1"
    made = subprocess.run([*podman.split(), "create", IMAGE, "/bin/true"], capture_output=True, check=True)
    container = made.stdout.decode().strip()
    committed = [*podman.split(), "commit", "--change", "ENV A=b", container, other]
    subprocess.run(committed, capture_output=True, check=True)
    subprocess.run([*podman.split(), "rm", container], capture_output=True, check=True)

    assert seen(tagged(IMAGE, "1")) == (1, 1, ["not run before"])
    assert seen(tagged(IMAGE, "2")) == (0, 0, [])
    runs, computed, (why,) = seen(tagged(other, "2"))
    assert (runs, computed) == (1, 1)
    assert why.startswith("container image sha256:")
    assert " -> sha256:" in why


@pytest.mark.exhaustive
def test_a_tag_that_means_two_images_on_two_nodes_is_told(
    podman: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node runs its own image under the tag, and the notes of the session have the digests of both."""
    home, image = Path(podman.split()[2]).parent, "localhost/dropflow-shared:1"
    engines = [podman, podman.replace("/root ", "/root2 ").replace("/run ", "/run2 ")]
    path, digests = os.environ["PATH"], list[str]()
    with Cluster(tmp_path, times=PATIENT) as cluster:
        nodes = []
        for name, engine in zip("ab", engines, strict=True):
            words = [*engine.split(), "import", "--change", f"ENV WHERE={name}", home / "image.tar", image]
            subprocess.run(words, capture_output=True, check=True)
            words = [*engine.split(), "image", "inspect", "--format", "{{index .RepoDigests 0}}", image]
            done = subprocess.run(words, capture_output=True, check=True, text=True)
            digests.append(done.stdout.strip())
            program = tmp_path / name / "podman"  # nodes of tests get none of our variables
            program.parent.mkdir()
            program.write_text(f'#!/bin/sh\nexec {shutil.which("podman", path=path)} {engine.partition(" ")[2]} "$@"\n')
            program.chmod(0o755)
            monkeypatch.setenv("PATH", f"{program.parent}:{path}")
            nodes.append(cluster.node(name))
        apps = [app(name, BASH, run_in=image, command="echo $WHERE > {output}") for name in "AB"]
        graph = translate(draw(tmp_path / "g.graph", [*apps, data("a"), data("b")], "A > a", "B > b")).graph
        client = cluster.client(cluster.island(*nodes))
        submit(client, placed(graph, {"A": "a", "a": "a"}, "b"), "shared")
        notes = finished(client, "shared").notes
        told = [note for note in notes if note.startswith(f"image {image} is ")]
        said = {content(client, "shared", result.oid) for result in client.results("shared").results}

    assert sorted(told) == sorted(f"image {image} is {digest}" for digest in digests)
    assert digests[0] != digests[1]
    assert said == {b"a\n", b"b\n"}


@pytest.mark.slow
def test_an_image_that_the_registry_does_not_have_stops_the_session_before_it_begins(registry: Any) -> None:
    """The error has the image, the engine and the answer of the registry; nothing has run, and nothing is noted."""
    home, image = registry.folder.parent, f"127.0.0.1:{registry.server_port}/absent:2.1"
    drawn = draw(home / "one.graph", [app("A", CONTAINER, image=image, command="true"), data("out")], "A > out")

    with pytest.raises(MissingDependencyError, match=r"podman cannot pull the image '127.*absent:2\.1'.* no image of"):
        local_run.run(translate(drawn).graph, home / "run")

    assert not (home / "run" / "journal.dfj").exists()
    assert not read_record(home / "run").images


@pytest.mark.slow
def test_a_command_and_a_function_run_in_an_image(podman: str, tmp_path: Path) -> None:
    """With ``run_in``: the interpreter is that of the image. An image without Python is told so."""
    image = "localhost/dropflow-python:1"
    program = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libraries = {Path(word) for word in linked.split() if word.startswith("/")}
    with tarfile.open(tmp_path / "python.tar", "w") as archive:
        for path in (program, *libraries):
            archive.add(path.resolve(), str(path))
        left_out = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "tkinter", "__pycache__")
        archive.add(library, filter=lambda one: None if Path(one.name).name in left_out else one)
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(program)
        archive.addfile(link)
    imported = [*podman.split(), "import", str(tmp_path / "python.tar"), image]
    subprocess.run(imported, capture_output=True, check=True)
    seen = "str(os.path.exists('/usr/bin/env'))"
    code = f"import os, sys\ndef look(x, out):\n    open(out, 'w').write(open(x).read() + {seen})\n"
    file = tmp_path / "data"
    file.write_text("sky")
    ports = [
        Argument(name="x", usage="InputPort", encoding="path", parameter_type="ApplicationArgument"),
        Argument(name="out", usage="OutputPort", encoding="path", parameter_type="ApplicationArgument"),
        _field("func_code", code),
        _field("func_name", "look"),
    ]

    def call(run_in: str) -> Attempted:
        fields = [*ports, _field("run_in", run_in), _field("environment", '{"A": "b"}')]
        given = [Given("x", file)]
        return try_app(
            "dlg.apps.pyfunc.PyFuncApp", tmp_path / run_in[-8:], inputs=given, outputs=["out"], fields=fields
        )

    said = [_field("command", "echo $A > {out}"), _field("run_in", IMAGE), _field("environment", '{"A": "b"}')]

    assert call(image).contents == [b"skyFalse"]
    assert f"the image {IMAGE} has no Python" in call(IMAGE).failure.text
    assert try_app(BASH, tmp_path, outputs=["out"], fields=said).contents == [b"b\n"]


@pytest.mark.slow
@pytest.mark.usefixtures("podman")
def test_a_container_that_needs_too_much_memory_is_told_so(tmp_path: Path) -> None:
    """The error names the limit, which is the memory that the node declares."""
    if "memory" not in container_engine().limits:
        pytest.skip("the container engine cannot limit memory here")

    got = _run(tmp_path, "exec tail /dev/zero > {out}", memory="40 MiB")

    assert "a lack of memory (its limit is 41.9 MB" in got.failure.text


@pytest.mark.slow
def test_the_own_command_of_an_image_runs(podman: str, tmp_path: Path) -> None:
    """With %% the rest of the command are arguments of the image's entry point."""
    entry = "localhost/dropflow-entry:1"
    changes = ["--change", 'ENTRYPOINT ["/bin/cp"]']
    podman_words = podman.split()
    kept = subprocess.run([*podman_words, "create", IMAGE, "/bin/true"], capture_output=True, check=True)
    container = kept.stdout.decode().strip()
    subprocess.run([*podman_words, "commit", *changes, container, entry], capture_output=True, check=True)
    subprocess.run([*podman_words, "rm", container], capture_output=True, check=True)
    file = tmp_path / "data"
    file.write_text("copied")

    got = _run(tmp_path, "%% {f} {out}", inputs=[("f", file)], image=entry)

    assert got.contents == [b"copied"]


@pytest.mark.slow
def test_a_container_ends_with_the_process_that_started_it(podman: str, tmp_path: Path) -> None:
    """After kill -9 of a run no process of its container is left, and the next process removes what is listed of it."""
    sleeper = app("Sleeper", CONTAINER, image=IMAGE, command=f"exec {' '.join(_SLEEPER)}")
    graph = draw(tmp_path / "sleeper.graph", [sleeper, data("out")], "Sleeper > out")
    command = [sys.executable, "-m", "dropflow", "run", graph, "--keep", tmp_path / "run"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _wait_for_sleepers(1, process)
        process.kill()
    _wait_for_sleepers(0)
    end_containers(tmp_path)
    assert not _containers(podman)


def _wait_for_sleepers(count: int, process: "subprocess.Popen[bytes] | None" = None) -> None:
    pause, clock = threading.Event(), SystemClock()
    deadline = clock.monotonic() + 60.0
    while len(found := [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == _SLEEPER]) != count:
        assert clock.monotonic() < deadline, f"there are {len(found)} processes, not {count}"
        assert process is None or process.poll() is None, "the run has ended"
        pause.wait(0.1)  # a process that is no child of this one


_SLEEPER = ["sleep", f"987{os.getpid():08}"]
"""A command of these tests alone: the same tests of another clone may run at the same time."""


def test_fields_of_containers_are_checked_before_anything_runs() -> None:
    """An image is needed; bindings, ports and variables must be readable."""
    for field, value, text in (
        ("image", "", "has no image"),
        ("image", "--privileged", "begins with a dash"),
        ("additionalBindings", "data:/x", "expected /source:/target"),
        ("portMappings", "80", "expected host:container"),
        ("portMappings", "80:1,80:2", "each host port once"),
        ("env", "{", "expected 'all', a JSON object"),
    ):
        with pytest.raises(BadParameterError, match=text):
            ContainerApp(_template(**{"image": "x", "command": "true", field: value}))


def test_an_image_that_cannot_be_pulled_is_an_error_also_if_the_engine_ends_with_an_empty_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error has the last line that says something."""
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho denied\necho\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv(ENGINE_VARIABLE, str(program))

    with pytest.raises(MissingDependencyError, match="docker cannot pull the image 'sky:1': denied"):
        pull_images(["sky:1"], tmp_path)


def test_a_host_without_a_container_engine_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error is about this host: another one may run the node."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)

    with pytest.raises(MissingDependencyError, match="a container engine is not installed") as caught:
        refuse_need(*ContainerApp(_template(image="x", command="true")).needs())
    assert caught.value.of_host


def _stand_in(engine: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a program with the name of an engine that prints its arguments and its variables for containers."""
    program = directory / engine
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nenv | grep ENV_\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv(ENGINE_VARIABLE, str(program))


def test_variables_have_the_text_that_the_node_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No shell reads them: quotes, backslashes and blanks stay, and fields are filled in."""
    _stand_in("apptainer", tmp_path, monkeypatch)
    env = json.dumps({"CONFIG": """{"it's":  "a\\b", "n": {n}}"""})
    got = _run(tmp_path, "true", image="icrar/wsclean:3.4", outputs=(), env=env, n=7)

    assert """APPTAINERENV_CONFIG={"it's":  "a\\b", "n": 7}""" in got.log


@pytest.mark.parametrize(("engine", "prefix"), [("apptainer", "APPTAINERENV_"), ("singularity", "SINGULARITYENV_")])
def test_apptainer_gets_variables_in_its_environment(
    engine: str, prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its option for them divides values at commas. The variables of commands outside of containers are among them."""
    _stand_in(engine, tmp_path, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    got = _run(tmp_path, "true", image="x", outputs=(), env='{"A": "b,c=\\"d"}', num_gpus=2)

    wanted = ('A=b,c="d', "CUDA_VISIBLE_DEVICES=0,1", "DLG_UID=t_app_0", "OMP_NUM_THREADS=1")
    assert {f"{prefix}{each}" for each in wanted} <= {*got.log.splitlines()}


@pytest.mark.parametrize("engine", ["apptainer", "docker"])
def test_a_variable_of_a_container_has_priority(engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The limit of threads for commands does not replace that of the field ``env``."""
    _stand_in(engine, tmp_path, monkeypatch)
    got = _run(tmp_path, "true", image="x", outputs=(), env='{"OMP_NUM_THREADS": "4"}')
    found = [line for line in got.log.splitlines() if "ENV_OMP_NUM" in line or "--env=OMP_NUM" in line]

    assert ["OMP_NUM_THREADS=4" in line for line in found] == [True]


def test_each_image_of_apptainer_has_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also if only the ends of long names differ, as those of digests do: else the last one would run for all."""
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv(ENGINE_VARIABLE, str(program))
    name = f"registry.example.org/{'group/' * 14}imager"
    files = pull_images([f"{name}@sha256:{digit * 64}" for digit in "01"], tmp_path)

    assert len({*files.values()}) == 2


def test_apptainer_gets_the_same_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its command line has the mounts, the variables and the image, and runs the command in a shell."""
    _stand_in("apptainer", tmp_path, monkeypatch)

    got = _run(tmp_path, "wsclean {out}", image="icrar/wsclean:3.4", env='{"A": "b"}', num_gpus=1)

    prepare_containers([_template(image="icrar/wsclean:3.4", command="true")], tmp_path)
    file = read_record(tmp_path).images["icrar/wsclean:3.4"]
    lines = got.log.splitlines()
    words = [line.split(" ")[-1] for line in lines]
    assert {"exec", "--containall", "--nv", "docker://icrar/wsclean:3.4", "/bin/sh", "-c"} <= {*words}
    assert file.startswith(str(tmp_path / "images"))
