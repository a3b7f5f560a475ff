"""Which modules commands import, and what Ctrl-C does in the meantime."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_LARGE = (
    *("asyncio", "bottle", "cloudpickle", "concurrent.futures", "http.client", "humanize", "jsonschema"),
    *("multiprocessing", "numpy", "platformdirs", "prometheus_client", "psutil", "pymetis", "rich", "rustworkx"),
    *("subprocess", "tarfile", "waitress", "zeroconf", "zmq"),
    *("dropflow.apps", "dropflow.data", "dropflow.engine", "dropflow.graph.physical", "dropflow.graph.templates"),
    "dropflow.api.client",
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

_ASK = """
import contextlib, io, json, sys
from dropflow.cli.main import main

found, known = {}, set()
for command in json.load(sys.stdin):
    answer = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(answer):
        main([*command.split(), "--to", "http://127.0.0.1:1"])
    if "nothing listens there" not in answer.getvalue():
        found[command] = answer.getvalue()
    new = {large for large in sys.argv[1:] if large in sys.modules} - known
    known |= new
    if new:
        found[command] = sorted(new)
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


_CLIENT = (
    *(
        "watch s --once",
        "sessions",
        "nodes",
        "watch s --patience 0",
        "explain s d",
        "log s",
        "fetch s -o x",
        "fetch s d",
    ),
    *("cancel s", "delete s", "pause s", "resume s --force", "resume s", "retry s", "rebalance s", "drain n"),
    "open s",
)
"""Commands that ask a manager, and draw and compute nothing."""


def _run(script: str, *arguments: str, typed: str = "", where: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        input=typed,
        cwd=where,
        env=os.environ | {"DROPFLOW_TOKEN": "token"},  # a cluster key is read by zmq
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_of_no_command_imports_a_large_module() -> None:
    """Help is printed in the time that click needs."""
    printed = _run(_HELP, *_LARGE)

    assert json.loads(printed.stdout) == {}


def test_commands_that_ask_a_manager_import_no_numpy(tmp_path: Path) -> None:
    """Only commands that draw, compute or send a graph pay for it, and for the engine, components and tar files."""
    small = {"http.client", "platformdirs", "dropflow.apps", "dropflow.data", "dropflow.api.client"}
    large = [module for module in _LARGE if module not in small] + ["dropflow.apps.registry", "dropflow.data.registry"]
    printed = _run(_ASK, *large, typed=json.dumps(_CLIENT), where=tmp_path)

    assert (json.loads(printed.stdout), printed.stderr) == ({}, "")


@pytest.mark.parametrize("module", ["click", "dropflow.cli.graphs", "dropflow.cli.graph_files", "numpy"])
def test_ctrl_c_during_an_import_ends_the_command_without_a_traceback(module: str, examples: Path) -> None:
    """Before the command begins as well as while it imports what it needs; the exit status is 130."""
    graph = str(examples / "nested-scatter-gather.graph")
    ended = _run(_INTERRUPTED, "default_int_handler", module, "dropflow", "info", graph)

    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (130, "", "interrupted")


def test_a_command_with_sigint_ignored_ignores_it() -> None:
    """As in a shell that starts commands in the background."""
    ended = _run(_INTERRUPTED, "SIG_IGN", "dropflow.cli.misc", "dropflow", "completion", "bash")

    assert (ended.returncode, ended.stderr) == (0, "")
