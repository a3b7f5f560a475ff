"""The command as people start it: a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dropflow = Callable[..., "Done"]


class Done:
    """A command that has ended."""

    def __init__(self, process: "subprocess.CompletedProcess[bytes]") -> None:
        self.status = process.returncode
        self.out = process.stdout
        self.err = process.stderr.decode()

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def dropflow(tmp_path: Path) -> Dropflow:
    """Start ``dropflow`` with arguments, in an empty directory; no command ever answers with a traceback."""

    def start(*arguments: object, stdin: bytes = b"", timeout: float = 60) -> Done:
        done = Done(
            subprocess.run(
                [sys.executable, "-m", "dropflow", *map(str, arguments)],
                input=stdin,
                capture_output=True,
                cwd=tmp_path,
                timeout=timeout,
                check=False,
            )
        )
        assert "Traceback (most recent call last)" not in done.err
        return done

    return start


@pytest.fixture
def examples() -> Path:
    """The directory of the example graphs."""
    return Path(__file__).resolve().parents[2] / "examples"
