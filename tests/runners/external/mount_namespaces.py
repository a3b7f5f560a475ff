"""Hosts that do not see a directory: mount namespaces of this machine."""

import shutil
import subprocess
from pathlib import Path

import pytest


def may_unshare() -> bool:
    """Whether this user may make mount namespaces."""
    command = ["unshare", "-m", "true"]
    return bool(shutil.which("unshare")) and not subprocess.run(command, capture_output=True, check=False).returncode


needs_namespaces = pytest.mark.skipif(not may_unshare(), reason="mount namespaces need the superuser")


def without(directory: Path, command: list[str]) -> list[str]:
    """Return a command that runs where `directory` is empty, as on a host that does not share it."""
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {directory} && exec "$0" "$@"', *command]
