"""Which modules commands import, and what Ctrl-C does in the meantime."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_LARGE = (
    *("asyncio", "bottle", "cloudpickle", "concurrent.futures", "http.client", "humanize", "jsonschema"),
    *("multiprocessing", "numpy", "platformdirs", "prometheus_client", "psutil", "pymetis", "rich", "rustworkx"),
    *("subprocess", "tarfile", "waitress", "zeroconf", "zmq"),
    *("dropflow.apps", "dropflow.data", "dropflow.engine", "dropflow.graph", "dropflow.rest.client"),
    *("managers.node", "managers.composite", "managers.links", "translator.pipeline"),
)

_HELP = """
import contextlib, io, json, sys
from dropflow.cli.main import commands, main

found, known = {}, set()
for name in commands.commands:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main([name, "--help"])
    new = {large for large in sys.argv[1:] if large in sys.modules} - known
    known |= new
    if new:
        found[name] = sorted(new)
print(json.dumps(found))
"""

_INTERRUPTED = """
import os, runpy, signal, sys

class Interrupt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

handler, module, *sys.argv = sys.argv[1:]
signal.signal(signal.SIGINT, getattr(signal, handler))
sys.meta_path.insert(0, Interrupt)
runpy.run_module("dropflow", run_name="__main__")
"""


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_of_no_command_imports_a_large_module() -> None:
    """Help is printed in the time that click needs."""
    printed = _run(_HELP, *_LARGE)

    assert json.loads(printed.stdout) == {}


def test_the_client_imports_no_numpy() -> None:
    """Only commands that send or receive graphs pay for it."""
    printed = _run("import sys, dropflow.rest.client, dropflow.cli.connection; print('numpy' in sys.modules)")

    assert printed.stdout.strip() == "False"


@pytest.mark.parametrize("module", ["click", "dropflow.cli.info", "dropflow.cli.graph_files", "numpy"])
def test_ctrl_c_during_an_import_ends_the_command_without_a_traceback(module: str, examples: Path) -> None:
    """Before the command begins as well as while it imports what it needs; the exit status is 130."""
    graph = str(examples / "nested-scatter-gather.graph")
    ended = _run(_INTERRUPTED, "default_int_handler", module, "dropflow", "info", graph)

    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (130, "", "interrupted")


def test_a_command_with_sigint_ignored_ignores_it() -> None:
    """As in a shell that starts commands in the background."""
    ended = _run(_INTERRUPTED, "SIG_IGN", "dropflow.cli.version", "dropflow", "version")

    assert (ended.returncode, ended.stderr) == (0, "")
