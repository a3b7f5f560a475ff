"""The image of managers as a cluster in podman, and the manifests that run it on Kubernetes."""

import os
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from dropflow.cli.main import commands, load_command

ROOT = Path(__file__).resolve().parents[2]


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


def test_the_manifests_of_kubernetes_are_right() -> None:
    """Kustomize renders what Kubernetes' schemas permit; arguments and probes are those of the managers."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")
    rendered = subprocess.run(
        ["kubectl", "kustomize", ROOT / "examples" / "kubernetes"], capture_output=True, text=True, check=True
    )
    yaml = pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all(rendered.stdout))
    sets = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "StatefulSet"}
    services = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Service"}
    whole = commands.make_context("dropflow", ["node"])
    for name, found in sets.items():
        (container,) = found["template"]["spec"]["containers"]
        words = [word.replace("$(POD)", f"{name}-0") for word in container["args"]]
        given = load_command(words[0]).make_context(words[0], words[1:], parent=whole).params
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}

        assert (words[0], given["port"], given.get("links_port")) == (name, ports["http"], ports.get("links"))
        assert {each["name"]: each["port"] for each in services[name]["ports"]} == ports
        assert given["advertise"] == (f"{name}-0.{name}" if name == "node" else name)
        if name == "island":
            assert len(",".join(given["nodes"]).split(",")) == sets["node"]["replicas"]
        grace = found["template"]["spec"].get("terminationGracePeriodSeconds", 30)
        assert grace > given.get("drain_seconds", 0)

    assert sorted(sets) == sorted(services) == ["island", "node", "translator"]
    validate = pytest.importorskip(
        "kubernetes_validate", reason="make exhaustive installs kubernetes-validate"
    ).validate
    assert [validate(one, "1.32", strict=True) for one in documents] == ["1.32"] * len(documents)
