"""Jobs of `dropflow launch` in a directory of their own, and the guide that describes them."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.processes import environment

__all__ = ["Launched"]

ROOT = Path(__file__).resolve().parents[2]


class Launched:
    """Commands that launch jobs in a directory with the examples.

    Parameters
    ----------
    directory : Path
        It, and their home.
    system : str
        ``slurm`` or ``ssh``.
    more : str
        Further variables of their environment.
    """

    def __init__(self, directory: Path, system: str, **more: str) -> None:
        self.home = directory
        self.system = system
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
        self.environment = environment(directory) | {"PATH": path, "DROPFLOW_TOKEN": "a-token-of-the-user"} | more
        shutil.copytree(ROOT / "examples", directory / "examples")

    def shell(self, command: str, *, status: int = 0) -> str:
        """Run a command, and return what it printed; without a traceback, and with this exit status."""
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), (
            f"{command}\n{done.stdout}{done.stderr}"
        )
        return done.stdout + done.stderr

    def until(self, command: str, wanted: str) -> None:
        """Wait until a command prints a text."""
        pause = threading.Event()
        for _ in range(600):
            if wanted in self.shell(f"{command} || true"):
                return
            pause.wait(0.2)
        raise AssertionError(f"{command} has not printed {wanted!r}")

    def started(self, *arguments: object) -> "subprocess.Popen[str]":
        """Start a ``dropflow launch`` that waits for its job."""
        command = [sys.executable, "-m", "dropflow", "launch", self.system, *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.environment, cwd=self.home, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    def processes(self) -> list[psutil.Process]:
        """Return the processes of dropflow that work in this directory, or have it in their environment."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            words = process.info["cmdline"] or []
            places = [*words, *(process.info["environ"] or {}).values()]
            if "dropflow" in words and any(str(self.home) in place for place in places):
                found.append(process)
        return found

    def nothing_is_left(self) -> bool:
        """Return whether all processes of jobs end."""
        _, alive = psutil.wait_procs(self.processes(), timeout=60)
        return alive == []

    def run_guide(self, page: str, then: Callable[[str], None]) -> None:
        """Run the commands of a page one after another, and check their output; `then` is called after each.

        JOB in a command is the number of the last job that was shown.
        """
        text = (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```shell\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        steps = [step.splitlines() for block in blocks for step in ("\n" + block).split("\n$ ")[1:]]
        job = "0"
        for command, *expected in steps:
            shown = self.shell(command.replace("JOB", job))
            job = (re.findall(r"job (\d+) ", shown) or [job])[-1]
            for line in expected:
                assert re.search(re.escape(line).replace(r"\.\.\.", ".*"), shown), f"{command}\n{shown}"
            then(command)

    def secrets_seen(self, public: str) -> list[str]:
        """Return the secrets of jobs that are in a text, or in an argument or variable of a process."""
        files = [*self.home.glob("dropflow-jobs/*/key"), *self.home.glob("dropflow-jobs/*/token")]
        hidden = [path.read_text().split()[-1] for path in files] + ["a-token-of-the-user"]
        words = " ".join(word for one in self.processes() for word in (*one.cmdline(), *one.environ().values()))

        assert len(hidden) > 2
        assert [path for path in files if path.stat().st_mode & 0o077] == []
        return [secret for secret in hidden if secret in public or secret in words]
