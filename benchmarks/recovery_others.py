"""The steps of `recovery.py` on Dask and on Ray, in separate virtual environments.

Needs a package index that has ``distributed`` and ``ray``, or interpreters of environments that have them. The report
lists what is missing.
"""

import json
import os
import subprocess
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recovery_work import Log, Shape, repeats

__all__ = ["measure"]

_PACKAGES = {"dask": "distributed", "ray": "ray"}
_MOST_SECONDS = 600.0


def measure(name: str, shapes: Sequence[Shape], python: str | None = None) -> dict[str, Any]:
    """Measure the steps of each shape without a kill and with one.

    Parameters
    ----------
    name : str
        ``dask`` or ``ray``.
    shapes : sequence of Shape
        The steps.
    python : str, optional
        Interpreter of an environment that has it; by default one is installed for this measurement.
    """
    with tempfile.TemporaryDirectory() as directory:
        try:
            interpreter = python or _install(Path(directory) / "venv", _PACKAGES[name])
        except (OSError, subprocess.CalledProcessError) as error:
            output = getattr(error, "stderr", "") or str(error)
            return {"available": False, "why": f"{name} could not be installed: {output.strip()[-300:]}"}
        code = f"import importlib.metadata as m; print(m.version('{_PACKAGES[name]}'))"
        found = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=False)
        rows = [_measured(name, interpreter, shape) for shape in shapes]
        return {"available": True, "version": found.stdout.strip(), "rows": rows}


def _install(folder: Path, package: str) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    command = [python, "-m", "pip", "install", "--quiet", package]
    subprocess.run(command, capture_output=True, text=True, check=True)
    return python


def _measured(name: str, interpreter: str, shape: Shape) -> dict[str, Any]:
    whole = _run(name, interpreter, shape, kill=False)
    broken = _run(name, interpreter, shape, kill=True)
    report = {"steps": shape.steps, "step_ms": round(shape.seconds * 1e3, 2), **broken}
    if "run_s" in whole and "run_s" in broken:
        report["without_kill_s"] = whole["run_s"]
        report["ratio"] = round(broken["run_s"] / whole["run_s"], 2)
    return report


def _run(name: str, interpreter: str, shape: Shape, *, kill: bool) -> dict[str, Any]:
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory(prefix="df") as directory:  # short: Ray makes sockets below it
        log = Log(f"{directory}/log")
        command = [interpreter, str(here / f"recovery_{name}.py"), log.path, *map(str, shape), str(int(kill))]
        environment = {**os.environ, "PYTHONPATH": str(here), "TMPDIR": directory, "HOME": directory}
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=_MOST_SECONDS,
                env=environment,
                cwd=directory,
            )
        except subprocess.TimeoutExpired:
            return {"ended": f"not in {_MOST_SECONDS} s"}
        if done.returncode:
            return {"ended": f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"}
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        again = repeats(log.records())
    killed = report.pop("killed_ns", 0)
    if kill:
        report |= {"ran_again": len(again), "ran_again_of_all": round(len(again) / shape.steps, 4)}
        if again:
            report["kill_to_first_again_s"] = round((again[0].nanoseconds - killed) / 1e9, 3)
    return report
