"""The image of managers as a cluster in podman."""

import os
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

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
