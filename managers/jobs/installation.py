"""The dropflow that runs here, installed on hosts over ssh: ``--install``.

It is packed as a wheel, from the files of its packages, so that a host gets what runs here, be it a release or a clone.
Each host makes a virtual environment of its own, below the directory of its managers, with ``uv`` if it has that, else
with ``venv`` and ``pip``; they get the packages that dropflow requires as they do on that host. The name of the
environment has a digest of all that is in it, so that one which is there already is used again.
"""

import base64
import hashlib
import importlib.util
import inspect
import io
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from managers.jobs.ssh import SSH_FAILED, HostProblem, SshHost, ssh_command

_PACKAGES = ("dropflow", "managers", "palettes", "translator")
_WHEEL = "Wheel-Version: 1.0\nGenerator: dropflow\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_INSTALL_SECONDS = 900.0
"""Seconds in which dropflow must be installed on one host."""
_HOSTS_AT_ONCE = 16
"""Hosts on which dropflow is installed at the same time."""


def packed_wheel() -> tuple[str, bytes]:
    """Return the name and the content of a wheel of the dropflow that runs here; of equal files it is equal."""
    content, record = io.BytesIO(), []
    info = f"dropflow-{distribution('dropflow').version}.dist-info"
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _files(info):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            record.append(f"{name},sha256={digest},{len(data)}\n")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "".join([*record, f"{info}/RECORD,,\n"]))
    return f"{info.removesuffix('.dist-info')}-py3-none-any.whl", content.getvalue()


def _files(info: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a wheel whose metadata are in `info`."""
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None  # they are one distribution
        assert spec.origin is not None  # none of them is a namespace
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(root.parent)), path.read_bytes()
    installed = distribution("dropflow")
    for name in ("METADATA", "entry_points.txt"):
        yield f"{info}/{name}", (installed.read_text(name) or "").encode()
    yield f"{info}/WHEEL", _WHEEL.encode()


def install_on(hosts: Sequence[SshHost]) -> tuple[list[SshHost], list[HostProblem]]:
    """Install this dropflow on all hosts; return those that have it, with its interpreter, and the problems of others.

    The Python interpreter of a host makes the environment, ``python3`` if it names none.
    """
    name, wheel = packed_wheel()

    def install(host: SshHost) -> SshHost | HostProblem:
        digest = hashlib.sha256(wheel + repr(host.packages).encode()).hexdigest()[:12]
        folder = f"{host.directory}/{name.removesuffix('-py3-none-any.whl')}-{digest}"
        text = base64.b64encode(wheel).decode()
        program = f"{inspect.getsource(_install)}\n_install({folder!r}, {name!r}, {text!r}, *{host.packages!r})"
        base = msgspec.structs.replace(host, python=host.python or "python3")
        command = ssh_command(base, "-c 'exec(eval(input()))'")
        # A file, because a shared connection that ssh leaves in the background keeps its standard error open.
        with TemporaryFile() as errors:
            try:
                done = subprocess.run(  # noqa: S603 - no shell here
                    command,
                    input=f"{program!r}\n".encode(),
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    timeout=_INSTALL_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                text = f"dropflow was not installed within {_INSTALL_SECONDS:g} s"
                return HostProblem(host=host.name, text=text, hint="install it there, and name its 'python'")
            errors.seek(0)
            said = errors.read().decode(errors="replace")
        if done.returncode:
            lines = [line for line in said.splitlines() if line.strip()]
            last = lines[-1].strip() if lines else f"ssh ended with status {done.returncode}"
            is_unreachable = done.returncode == SSH_FAILED
            text = last if is_unreachable else f"dropflow cannot be installed: {last}"
            hint = f"try 'ssh -o BatchMode=yes {host.ssh or host.name} true'; --skip-unreachable leaves it out"
            if not is_unreachable:
                hint = "it needs Python 3.11 or later with venv, or uv, and an index of packages"
            return HostProblem(host=host.name, text=text, hint=hint, is_unreachable=is_unreachable)
        return msgspec.structs.replace(host, python=f"{folder}/env")

    with ThreadPoolExecutor(_HOSTS_AT_ONCE) as pool:
        outcomes = list(pool.map(install, hosts))
    problems = [outcome for outcome in outcomes if isinstance(outcome, HostProblem)]
    return [outcome for outcome in outcomes if isinstance(outcome, SshHost)], problems


def _install(directory: str, name: str, wheel: str, *packages: str) -> None:
    """Make a virtual environment with a wheel and packages, unless it is complete. It runs on a host, as in `ssh`."""
    # ruff: noqa: PLC0415 - its text is sent, to any Python from 3.6 on
    import base64
    import fcntl
    import shutil
    import subprocess
    import sys
    from pathlib import Path

    version, oldest = sys.version_info[:2], (3, 11)
    if version < oldest:
        sys.exit("its Python is {}.{}".format(*version))
    folder = Path(directory).expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made, file, done = folder / "env", folder / name, folder / "complete"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another command may install it
        if done.exists():
            return
        shutil.rmtree(made, ignore_errors=True)
        file.write_bytes(base64.b64decode(wheel))
        python, uv = made / "bin" / "python", shutil.which("uv")
        wanted = [str(file), *packages]
        steps = [[sys.executable, "-m", "venv", made], [python, "-m", "pip", "install", "-q", *wanted]]
        if uv:
            make = [uv, "venv", "-q", "--python", sys.executable, made]
            steps = [make, [uv, "pip", "install", "-q", "--python", python, *wanted]]
        for step in steps:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            result = subprocess.run(step, check=False, **pipes)  # type: ignore[call-overload] # noqa: S603 - no shell
            if result.returncode:
                lines = result.stdout.decode(errors="replace").splitlines()
                sys.exit(([line for line in lines if "error" in line.lower()] or lines or ["it ended"])[-1])
        done.touch()
