"""Commands in containers, by the command line of podman, docker or apptainer.

The command is that of a `dropflow.apps.shell.BashShellApp`, with the same placeholders. It runs by ``/bin/sh -c`` in a
container of an image; if it begins with ``%%``, the rest are arguments of the image's own entry point, and if it is
empty, the image's own command runs.

What the command names is mounted under the path that it has outside: inputs read-only, and for each output a private
directory, from which the output is committed as everywhere. The working directory is private, too, and is removed at
the end. The container has the user ids of dropflow's process, no capabilities, no network unless the node asks for one,
and at most the processors and the memory that the node declares.
"""

import contextlib
import csv
import getpass
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dropflow.apps.api import Context, InputData, OutputData
from dropflow.apps.attempt_input import AttemptInput
from dropflow.apps.shell import COMMAND_PARAMETERS, BashShellApp, PlaceholderFiller, status_text
from dropflow.data.workspace import PART_FOLDER
from dropflow.engine.parameters import Component, Parameter
from dropflow.errors import AppError, BadParameterError, MissingDependencyError
from dropflow.formatting import format_size
from dropflow.graph.templates import Kind, ResourceNeeds, Template, needs_of
from dropflow.runners.capacity import THREAD_VARIABLES
from dropflow.runners.descendants import WORKER_VARIABLE

__all__ = ["ENGINE_VARIABLE", "ContainerApp", "ContainerEngine", "container_engine"]

ENGINE_VARIABLE = "DROPFLOW_CONTAINERS"
"""Environment variable with the command of the container engine of this host, such as ``podman --runtime runc``."""

_ENGINES = ("podman", "docker", "apptainer", "singularity")
_SECONDS = 60.0
"""Longest time in which an engine answers a question or removes a container."""
_OWN_ENTRY = "%%"
_KILLED = 128 + signal.SIGKILL
_VARIABLES = ("DLG_UID", "DLG_SESSION_ID", "DLG_ROOT", WORKER_VARIABLE, *THREAD_VARIABLES)
"""What containers get of the environment of commands."""


class ContainerEngine(NamedTuple):
    """The container engine of this host.

    Attributes
    ----------
    command : tuple of str
        Its program, with options.
    limits : str
        Names of the resources that it can limit, ``cpu`` and ``memory``; empty for none.
    is_rootless : bool
        Whether it maps the user of this process to root, unless it is told to keep the ids.
    """

    command: tuple[str, ...]
    limits: str
    is_rootless: bool

    @property
    def name(self) -> str:
        """Name of its program."""
        return Path(self.command[0]).name

    @property
    def is_apptainer(self) -> bool:
        """Whether it is apptainer, which runs containers as its own children, without names."""
        return self.name in ("apptainer", "singularity")

    def ask(self, *arguments: str) -> str:
        """Return the answer of the engine to a question; empty if it fails."""
        return _answer((*self.command, *arguments))


def container_engine() -> ContainerEngine:
    """Return the container engine that `ENGINE_VARIABLE` names, or the first that is installed.

    Raises
    ------
    MissingDependencyError
        There is none on this host.
    """
    named = os.environ.get(ENGINE_VARIABLE, "")
    found = shlex.split(named) or [name for name in _ENGINES if shutil.which(name)][:1]
    if not found or not shutil.which(found[0]):
        missing = f"the container engine '{found[0]}' of {ENGINE_VARIABLE}" if found else "a container engine"
        raise MissingDependencyError(
            f"{missing} is not installed on this host", hint="install podman, docker or apptainer", of_host=True
        )
    return _engine(tuple(found))


@cache
def _engine(command: tuple[str, ...]) -> ContainerEngine:
    name = Path(command[0]).name
    if name == "podman":
        rootless, _, limits = _answer(
            (*command, "info", "--format", "{{.Host.Security.Rootless}} {{.Host.CgroupControllers}}")
        ).partition(" ")
        return ContainerEngine(command, limits, rootless == "true")
    return ContainerEngine(command, "cpu memory" if name == "docker" else "", is_rootless=False)


def _answer(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the engine of this host
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if not done.returncode else ""


def _field(name: str, description: str, **more: Any) -> Parameter:
    return Parameter(name=name, parameter_type="ComponentParameter", description=description, **more)


class ContainerApp(BashShellApp):
    """Runs a command in a container."""

    component = Component(
        name="DockerApp",
        kind=Kind.APP,
        category="Docker",
        dropclass="dlg.apps.dockerapp.DockerApp",
        description="Runs a command in a container, with podman, docker or apptainer. Inputs are read-only. Its output "
        "goes to the drop's log; an exit status other than 0 fails.",
        parameters=(
            _field("image", "Name of the image, such as quay.io/group/program:1.2."),
            _field("tag", "Tag of the image, if its name has none.", aliases=("docker_tag",)),
            _field("digest", "Digest of the image, such as sha256:0123...", aliases=("docker_digest",)),
            *COMMAND_PARAMETERS,
            _field(
                "env",
                'Variables of the container: JSON such as {"NAME": "value"}, a list of names of this host, or all.',
            ),
            _field("workingDir", "Working directory in the container; by default a private one, which is removed."),
            _field("user", "User in the container, such as 1000:1000; by default the one who runs dropflow."),
            _field(
                "ensureUserAndSwitch",
                "Changes nothing: containers run with the user ids of the one who runs dropflow.",
                type="Boolean",
                default=False,
            ),
            _field("additionalBindings", "Other mounts, separated by commas: source:target, or source:target:ro."),
            _field("portMappings", "Ports to publish, separated by commas: host:container."),
            _field("network", "Network: none, bridge, host or its name; by default none, or bridge with portMappings."),
            _field("shmSize", "Size of /dev/shm in the container, such as 8g."),
            _field("removeContainer", "Remove the container at its end.", type="Boolean", default=True),
        ),
    )
    needs_command = False

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        fields = {name: value.strip() if isinstance(value, str) else value for name, value in self.parameters.items()}
        self._image = _image(fields["image"], fields["tag"], fields["digest"])
        self._bindings = _bindings(fields["additionalBindings"])
        self._ports = _ports(fields["portMappings"])
        self._network = fields["network"] or ("bridge" if self._ports else "none")
        self._env = _variables(fields["env"])
        self._directory, self._user, self._shm = fields["workingDir"], fields["user"], fields["shmSize"]
        self._stays = not fields["removeContainer"]

    def needs(self) -> tuple[str, ...]:
        """Return that it needs a container engine."""
        return ("container:engine",)

    def run(self, context: Context) -> None:
        """Fill in the placeholders and run the command in a container.

        Raises
        ------
        AppError
            The command ended with a status other than 0 or used too much memory, the image is not available, or a
            placeholder has no value.
        MissingDependencyError
            There is no container engine.
        """
        engine = container_engine()
        needs = needs_of(self.template)
        place = _Place(context)
        text = self.filled(context, place).strip()
        environment = self._environment(place)
        mounts = [*place.mounts, *self._mounted()]
        _fetch(context, engine, self._image)
        context.log(f"in {self._image}: $ {text}")
        if engine.is_apptainer:
            status = context.command(_exec(self._apptainer(engine, place, mounts, environment, text)), {})
            reason = ""
        else:
            name = f"dropflow-{uuid.uuid4().hex[:16]}"
            words = [*self._limits(engine, needs), *self._about(context, place, mounts), *self._program(text)]
            with _removed(engine, name, stays=self._stays):
                passed = [f"--env={key}={value}" for key, value in environment.items()]
                status = context.command(_exec([*engine.command, "run", f"--name={name}", *passed, *words]), {})
                reason = _lack_of_memory(engine, name, needs, status) if status else ""
        if status:
            raise AppError(
                f"the command in a container of {self._image} ended with {reason or status_text(status)}: "
                f"{self.command[:200]}",
                hint="set the field 'memory' of the node to what it needs" if reason else "see the drop's log",
            )
        place.collect()

    def _program(self, text: str) -> list[str]:
        """Return the image, and what runs in it."""
        if not text:
            return [self._image]
        if text.startswith(_OWN_ENTRY):
            return [self._image, *shlex.split(text.removeprefix(_OWN_ENTRY))]
        return ["--entrypoint=/bin/sh", self._image, "-c", text]

    def _about(self, context: Context, place: "_Place", mounts: Sequence["_Mount"]) -> list[str]:
        """Return the options that do not limit the container."""
        return [
            f"--label=dropflow.session={context.session}",
            f"--label=dropflow.drop={context.oid}",
            f"--workdir={self._directory or place.scratch}",
            *(f"--env={name}" for name in _VARIABLES),
            *(f"--mount={mount.text}" for mount in mounts),
            *(f"--publish={port}" for port in self._ports),
        ]

    def _limits(self, engine: ContainerEngine, needs: ResourceNeeds) -> list[str]:
        """Return the options that limit the container."""
        return [
            f"--user={self._user or f'{os.getuid()}:{os.getgid()}'}",
            f"--network={self._network}",
            "--security-opt=no-new-privileges",
            "--cap-drop=all",
            *(["--userns=keep-id"] if engine.is_rootless else []),
            *(["--init"] if engine.name == "docker" else []),  # so that a shell ends at SIGTERM; podman's is a package
            *([f"--cpus={needs.cpus}"] if "cpu" in engine.limits else []),
            *([f"--memory={int(needs.memory)}"] if needs.memory and "memory" in engine.limits else []),
            *([f"--shm-size={self._shm}"] if self._shm else []),
        ]

    def _apptainer(
        self,
        engine: ContainerEngine,
        place: "_Place",
        mounts: Sequence["_Mount"],
        environment: Mapping[str, str],
        text: str,
    ) -> list[str]:
        """Return the command of apptainer, which knows users, processes and networks only as those of this host."""
        words = ["--containall", "--no-home", f"--pwd={self._directory or place.scratch}"]
        words += [f"--env={key}={value}" for key, value in environment.items()]
        words += [f"--mount={mount.text}" for mount in mounts]
        image = self._image if "://" in self._image or Path(self._image).exists() else f"docker://{self._image}"
        if not text or text.startswith(_OWN_ENTRY):
            return [*engine.command, "run", *words, image, *shlex.split(text.removeprefix(_OWN_ENTRY))]
        return [*engine.command, "exec", *words, image, "/bin/sh", "-c", text]

    def _environment(self, place: "_Place") -> dict[str, str]:
        """Return the variables that the node gives, with placeholders filled in, and those that a user has."""
        if isinstance(self._env, dict):
            given = {name: " ".join(place.words(value)) for name, value in self._env.items()}
        else:
            given = {name: os.environ[name] for name in self._env if name in os.environ}
        return {"HOME": str(place.scratch), "USER": getpass.getuser(), **given}

    def _mounted(self) -> list["_Mount"]:
        """Return the mounts that the node gives.

        Raises
        ------
        AppError
            One does not exist here.
        """
        for mount in self._bindings:
            if not Path(mount.source).exists():
                raise AppError(
                    f"'additionalBindings' of '{self.template.name}' has {mount.source}, which does not exist here",
                    hint="make it on each host that runs the node, or correct the field",
                )
        return list(self._bindings)


class _Mount(NamedTuple):
    """A path of this host in a container."""

    source: str
    target: str
    is_writable: bool

    @property
    def text(self) -> str:
        """The value of ``--mount``, one row of CSV."""
        row = io.StringIO()
        mode = () if self.is_writable else ("ro",)
        csv.writer(row, lineterminator="").writerow(["type=bind", f"src={self.source}", f"dst={self.target}", *mode])
        return row.getvalue()


class _Place(PlaceholderFiller):
    """What the command of one attempt names, as the container sees it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.scratch = Path(context.scratch())
        self.mounts = [_Mount(str(self.scratch), str(self.scratch), is_writable=True)]
        self._moves: dict[Path, Path] = {}

    def path_of(self, drop: InputData | OutputData) -> Path:
        """Return the path of an input or output in the container, and mount it."""
        path = drop.path
        is_output = any(output is drop for output in self.context.outputs)
        is_private = path.parent.name.endswith(PART_FOLDER)
        if is_output and not is_private:
            return self._moves.setdefault(path, self.scratch / f"output-{len(self._moves)}")
        folder = str(path.parent if is_output else path)
        mount = _Mount(folder, folder, is_output or (isinstance(drop, AttemptInput) and drop.is_private))
        if mount not in self.mounts:
            self.mounts.append(mount)
        return path

    def collect(self) -> None:
        """Move outputs that have no directory of their own to their paths."""
        for path, inside in self._moves.items():
            if inside.exists():
                shutil.move(inside, path)


def _exec(words: Sequence[str]) -> str:
    return f"exec {shlex.join(words)}"


def _fetch(context: Context, engine: ContainerEngine, image: str) -> None:
    """Have the engine pull an image that is not here; attempts of one host wait for each other.

    Raises
    ------
    AppError
        The image is not available.
    """
    if engine.is_apptainer:
        return  # it pulls, and keeps, what it runs
    lock = Path(tempfile.gettempdir()) / f"dropflow-images-{os.getuid()}.lock"
    known, pulled = (shlex.join([*engine.command, *verb, image]) for verb in (("image", "inspect"), ("pull",)))
    text = f"{known} > /dev/null 2>&1 || {pulled}"
    if context.command(f"exec flock {shlex.quote(str(lock))} /bin/sh -c {shlex.quote(text)}", {}):
        raise AppError(
            f"the image '{image}' is not on this host, and cannot be pulled",
            hint=f"correct the field 'image'; the drop's log has the answer of {engine.command[0]} to 'pull {image}'",
        )


@contextlib.contextmanager
def _removed(engine: ContainerEngine, name: str, *, stays: bool) -> Iterator[None]:
    """Remove a container at the end of the context, also if this worker process is killed in it.

    A shell waits for the end of a pipe that only this process holds open, and removes the container then.
    """
    engine_words = shlex.join(engine.command)
    removal = f"{engine_words} kill {name}" + ("" if stays else f"; {engine_words} rm --force {name}")
    environment = {key: value for key, value in os.environ.items() if key != WORKER_VARIABLE}
    watcher = subprocess.Popen(  # noqa: S603 - the engine of this host
        ["/bin/sh", "-c", f"read -r line; {removal}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert watcher.stdin is not None  # noqa: S101 - it is a pipe
        watcher.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            watcher.wait(_SECONDS)


def _lack_of_memory(engine: ContainerEngine, name: str, needs: ResourceNeeds, status: int) -> str:
    """Return that a container was ended because of its memory; empty if it was not."""
    # podman does not learn of it from each kernel and runtime. With a limit, it is what SIGKILL means.
    is_short = engine.ask("inspect", "--format", "{{.State.OOMKilled}}", name) == "true"
    if needs.memory and (is_short or status == _KILLED):
        return f"a lack of memory (its limit is {format_size(int(needs.memory))})"
    return "a lack of memory" if is_short else ""


def _image(name: str, tag: str, digest: str) -> str:
    """Return the whole name of an image. A tag or digest in the name itself has priority.

    Raises
    ------
    BadParameterError
        There is no name.
    """
    if not name:
        raise BadParameterError("the node has no image", fields=("image",), hint="fill in the field 'image'")
    if "@" in name:
        return name
    if tag and ":" not in name.rpartition("/")[2]:
        name = f"{name}:{tag}"
    return f"{name}@{digest}" if digest else name


def _bindings(text: str) -> tuple[_Mount, ...]:
    """Return the mounts of the field ``additionalBindings``.

    Raises
    ------
    BadParameterError
        Lists what cannot be used.
    """
    found, wrong = [], []
    for each in _listed(text):
        source, _, rest = each.partition(":")
        target, _, mode = rest.partition(":")
        target = target or source
        if source.startswith("/") and target.startswith("/") and mode in ("", "rw", "ro"):
            found.append(_Mount(source, target, mode != "ro"))
        else:
            wrong.append(each)
    if wrong:
        raise BadParameterError(
            f"parameter 'additionalBindings' has {', '.join(map(repr, wrong))}, expected /source:/target",
            fields=("additionalBindings",),
        )
    return tuple(found)


def _ports(text: str) -> tuple[str, ...]:
    """Return the ports of the field ``portMappings``.

    Raises
    ------
    BadParameterError
        Lists what cannot be used.
    """
    found = tuple(_listed(text))
    hosts = [each.partition(":")[0] for each in found]
    wrong = [each for each in found if not all(part.isdecimal() for part in each.split(":", 1)) or ":" not in each]
    wrong += [each for each, host in zip(found, hosts, strict=True) if hosts.count(host) > 1]
    if wrong:
        raise BadParameterError(
            f"parameter 'portMappings' has {', '.join(map(repr, wrong))}, expected host:container, each host port once",
            fields=("portMappings",),
        )
    return found


def _listed(text: str) -> Iterator[str]:
    """Yield the parts of a field that are separated by commas; old editors write them as a list."""
    for each in text.strip("[]").split(","):
        if part := each.strip().strip("'\""):
            yield part


def _variables(text: str) -> dict[str, str] | list[str]:
    """Return the variables of the field ``env``, or the names of those of this host.

    Raises
    ------
    BadParameterError
        It is none of what the field may be.
    """
    if text in ("", "all"):
        return list(os.environ) if text else []
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return {str(name): str(value) for name, value in found.items()}
    if isinstance(found, list):
        return [str(name) for name in found]
    raise BadParameterError(
        f"parameter 'env' is {text[:60]!r}, expected 'all', a JSON object of variables, or a JSON list of names",
        fields=("env",),
    )
