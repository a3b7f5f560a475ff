"""Commands in containers, by the command line of podman, docker or apptainer.

The command is that of a `dropflow.apps.shell.BashShellApp`, with the same placeholders. It runs by ``/bin/sh -c`` in a
container of an image; if it begins with ``%%``, the rest are arguments of the image's own entry point, and if it is
empty, the image's own command runs.

Paths in the command are mounted under the same paths as outside: inputs read-only, and for each output a private
directory, from which the output is committed as for all applications. The working directory is private, too, and is
removed at the end. The container has the user ids of dropflow's process, no capabilities, no network unless the node
asks for one, and at most the processors and the memory that the node declares.
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
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from dropflow.apps.app_interface import Context, InputData, OutputData
from dropflow.apps.attempt_input import AttemptInput
from dropflow.apps.container_engine import (
    ANSWER_SECONDS,
    ContainerEngine,
    container_engine,
    fetch_command,
    labels,
    pull_error,
    read_record,
)
from dropflow.apps.runtime_environment import RUN_IN, VARIABLES
from dropflow.apps.shell import COMMAND_PARAMETERS, BashShellApp, PlaceholderFiller, status_text
from dropflow.data.storage_errors import failed_program_hint
from dropflow.data.workspace import PART_FOLDER
from dropflow.errors import AppError, BadParameterError, OutOfMemoryError
from dropflow.formatting import format_size
from dropflow.graph.components import Component, Parameter
from dropflow.graph.templates import Kind, Template, needs_of
from dropflow.host.descendants import WORKER_VARIABLE
from dropflow.host.gpus import GPU_VARIABLE
from dropflow.host.processors import THREAD_VARIABLES

_OWN_ENTRY = "%%"
_KILLED = 128 + signal.SIGKILL
_FIRST_LOOK, _LONGEST_PAUSE = 0.2, 2.0
"""Seconds until the first reading of the memory of a container, and longest seconds between two readings."""
_VARIABLES = ("DLG_UID", "DLG_SESSION_ID", "DLG_ROOT", WORKER_VARIABLE, *THREAD_VARIABLES)
"""Variables of the environment of commands that containers get, too."""


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
            _field("image", "Name of the image, such as quay.io/group/program:1.2.", aliases=("run_in",)),
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
    environment_fields: ClassVar[tuple[str, ...]] = (RUN_IN, VARIABLES)

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        self.container = Container(template, self.parameters)
        self._env = _variables(str(self.parameters["env"]).strip())

    def needs(self) -> tuple[str, ...]:
        """Return its needs: a container engine, and its image."""
        return (*self.container.needs, *self.environment.needs)

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
        filling = ContainerFiller(context)
        text = self.filled(context, filling).strip()
        if isinstance(self._env, dict):
            given = {name: filling.filled_text(value) for name, value in self._env.items()}
        else:
            given = {name: os.environ[name] for name in self._env if name in os.environ}
        context.log(f"in {self.container.image}: $ {text}")
        if not text or text.startswith(_OWN_ENTRY):
            program = Program("", tuple(shlex.split(text.removeprefix(_OWN_ENTRY))))
        else:
            program = Program("/bin/sh", ("-c", text))
        values = self.environment.values()
        hidden = self.environment.secrets(values)
        status, lack = self.container.run(context, filling, program, {**given, **values}, hidden=hidden)
        if status:
            raise (OutOfMemoryError if lack else AppError)(
                f"the command in a container of {self.container.image} ended with {lack or status_text(status)}: "
                f"{self.command[:200]}",
                hint="set the field 'memory' of the node to what it needs"
                if lack
                else failed_program_hint(context.directory),
            )
        filling.collect()


class Program(NamedTuple):
    """The program that runs in a container, with arguments; without a name, the image's own entry point."""

    name: str
    arguments: tuple[str, ...]


class Container:
    """The container in which the attempts of one node run.

    Parameters
    ----------
    template : Template
        The node, which declares processors and memory.
    fields : mapping of str to Any
        Values of its parameters, by the names in `ContainerApp.component`; missing parameters have their defaults.

    Raises
    ------
    BadParameterError
        A value cannot be used.
    """

    def __init__(self, template: Template, fields: Mapping[str, Any]) -> None:
        given = {parameter.name: parameter.default for parameter in ContainerApp.component.parameters} | dict(fields)
        texts = {name: value.strip() if isinstance(value, str) else value for name, value in given.items()}
        self._name = template.name
        self._limits = needs_of(template)
        self.image = _image(texts["image"], texts["tag"], texts["digest"])
        """Whole name of the image, from the graph."""
        self._bindings = _bindings(texts["additionalBindings"])
        self._ports = _ports(texts["portMappings"])
        self._network = texts["network"] or ("bridge" if self._ports else "none")
        self._directory, self._user, self._shm = texts["workingDir"], texts["user"], texts["shmSize"]
        self._stays = not texts["removeContainer"]

    @property
    def needs(self) -> tuple[str, ...]:
        """The needs of a host: a container engine, and the image."""
        return ("container:engine", f"image:{self.image}")

    def run(
        self,
        context: Context,
        filling: "ContainerFiller",
        program: Program,
        variables: Mapping[str, str],
        *,
        hidden: Mapping[str, str],
    ) -> tuple[int, str]:
        """Run a program in a container, and remove the container.

        Parameters
        ----------
        variables : mapping of str to str
            Its environment.
        hidden : mapping of str to str
            Variables with secret values: passed in the environment of the engine, not among its arguments.

        Returns
        -------
        status : int
            Exit status of the program.
        lack : str
            Text that it was ended because of its memory; empty if it was not.

        Raises
        ------
        AppError
            The image is not available, or a directory of ``additionalBindings`` is not here.
        MissingDependencyError
            There is no container engine.
        """
        record = read_record(context.directory.parent)
        engine = container_engine(Path(*record.engine[:1]).name)
        image = record.images.get(self.image, self.image)
        environment = {"HOME": str(filling.scratch), "USER": getpass.getuser(), **variables}
        passed = [key for key in _VARIABLES if key not in environment]
        words = [f"--mount={mount.text}" for mount in (*filling.mounts, *self._mounted())]
        if engine.is_apptainer:
            words += [f"--pwd={self._directory or filling.scratch}", *self._gpus(engine)]
            # Its --env divides a value at commas, and takes quotes away.
            prefix = f"{engine.name.upper()}ENV_"
            own = [*passed, *([GPU_VARIABLE] if self._limits.gpus else [])]
            exported = " ".join(f'${{{key}+{prefix}{key}="${key}"}}' for key in own)
            command = f"export {exported}; {_exec(_apptainer(engine, image, words, program))}"
            variables = {f"{prefix}{key}": value for key, value in environment.items()}
            return context.command(command, variables, hidden=tuple(hidden.values())), ""
        if image == self.image:  # the image was not prepared, such as on another host, for an engine such as Dask
            _fetch(context, engine, image)
        name = f"dropflow-{uuid.uuid4().hex[:16]}"
        words += [
            f"--workdir={self._directory or filling.scratch}",
            *(f"--env={key}" if key in hidden else f"--env={key}={value}" for key, value in environment.items()),
            *(f"--env={key}" for key in passed),
            *(f"--label={label}" for label in labels(context.directory.parent)),
            f"--label=dropflow.session={context.session}",
            f"--label=dropflow.drop={context.oid}",
            *self._limiting(engine, context.memory_limit),
            *([f"--entrypoint={program.name}"] if program.name else []),
            image,
            *program.arguments,
        ]
        with _removed(engine, name, stays=self._stays), _PeakMemory(engine, name) as peak:
            command = _exec([*engine.command, "run", f"--name={name}", *words])
            status = context.command(command, hidden, hidden=tuple(hidden.values()))
            lack = _lack_of_memory(engine, name, context.memory_limit, status) if status else ""
        context.used_memory(peak.bytes)
        return status, lack

    def _limiting(self, engine: ContainerEngine, memory: int) -> list[str]:
        """Return the options that limit the container."""
        needs = self._limits
        return [
            f"--user={self._user or f'{os.getuid()}:{os.getgid()}'}",
            f"--network={self._network}",
            "--security-opt=no-new-privileges",
            "--cap-drop=all",
            *(["--userns=keep-id"] if engine.is_rootless else []),
            *(["--init"] if engine.name == "docker" else []),  # so that a shell ends at SIGTERM; podman's is a package
            *([f"--cpus={needs.cpus}"] if "cpu" in engine.limits else []),
            *([f"--memory={memory}"] if memory and "memory" in engine.limits else []),
            *([f"--shm-size={self._shm}"] if self._shm else []),
            *self._gpus(engine),
            *(f"--publish={port}" for port in self._ports),
        ]

    def _gpus(self, engine: ContainerEngine) -> list[str]:
        """Return the options that give the container the GPUs of the attempt, as the only ones that it sees."""
        if not self._limits.gpus:
            return []
        names = os.environ.get(GPU_VARIABLE, "all")
        if engine.is_apptainer:
            return ["--nv"]
        if engine.name == "docker":
            return [f'--gpus="device={names}"']
        return [f"--device=nvidia.com/gpu={name}" for name in names.split(",")]

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
                    f"'additionalBindings' of '{self._name}' has {mount.source}, which does not exist here",
                    hint="make it on each host that runs the node, or correct the field",
                )
        return list(self._bindings)


def _apptainer(engine: ContainerEngine, image: str, options: Sequence[str], program: Program) -> list[str]:
    """Return the command of apptainer. Its containers share users, processes and networks with this host."""
    file = image if "://" in image or Path(image).exists() else f"docker://{image}"
    verb = "exec" if program.name else "run"
    name = [program.name] if program.name else []
    return [*engine.command, verb, "--containall", "--no-home", *options, file, *name, *program.arguments]


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


class ContainerFiller(PlaceholderFiller):
    """Fills the placeholders of a command with paths as the container sees them, and collects what it mounts."""

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
        """Move outputs without a private directory to their paths."""
        for path, inside in self._moves.items():
            if inside.exists():
                shutil.move(inside, path)


def _exec(words: Sequence[str]) -> str:
    return f"exec {shlex.join(words)}"


def _fetch(context: Context, engine: ContainerEngine, image: str) -> None:
    """Tell the engine to pull an image that is not on this host.

    Raises
    ------
    MissingDependencyError
        The image is not available.
    """
    if context.command(fetch_command(engine, image), {}):
        raise pull_error(engine, {image: "the drop's log has its answer"})


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
        assert watcher.stdin is not None  # it is a pipe
        watcher.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            watcher.wait(ANSWER_SECONDS)


class _PeakMemory:
    """Reads the largest memory of a container while the context lasts.

    The kernel keeps it in the cgroup of the container, which is removed when the container ends, and reports no
    changes. So a thread reads it from time to time.
    """

    def __init__(self, engine: ContainerEngine, name: str) -> None:
        self.bytes = 0
        """The largest memory so far; 0 if it is not known."""
        self._engine = engine
        self._name = name
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"memory of {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(ANSWER_SECONDS)

    def _run(self) -> None:
        pause, file = _FIRST_LOOK, None
        while not self._is_over.wait(pause):
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                file = file or _memory_file(self._engine.ask("inspect", "--format", "{{.State.Pid}}", self._name))
                self.bytes = max(self.bytes, int(file.read_text())) if file else 0
            except (OSError, ValueError):  # it has ended
                continue


def _memory_file(pid: str) -> Path | None:
    """Return the file with the largest memory of the cgroup of a process; None if the process does not run yet."""
    if not int(pid or "0"):
        return None
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        folder = Path("/sys/fs/cgroup", "memory" if controllers else "", path.lstrip("/"))
        file = folder / ("memory.max_usage_in_bytes" if controllers else "memory.peak")
        if controllers in ("memory", "") and file.exists():
            return file
    return None


def _lack_of_memory(engine: ContainerEngine, name: str, memory: int, status: int) -> str:
    """Return a text that a container was ended because of its memory; empty if it was not."""
    # Not every kernel and runtime reports this to podman. With a limit, SIGKILL is taken for it.
    is_short = engine.ask("inspect", "--format", "{{.State.OOMKilled}}", name) == "true"
    if memory and (is_short or status == _KILLED):
        return f"a lack of memory (its limit is {format_size(memory)})"
    return "a lack of memory" if is_short else ""


def _image(name: str, tag: str, digest: str) -> str:
    """Return the whole name of an image. A tag or digest in the name itself has priority.

    Raises
    ------
    BadParameterError
        The name is empty, or an engine would take it for an option.
    """
    if not name:
        raise BadParameterError("the node has no image", fields=("image",), hint="fill in the field 'image'")
    if name.startswith("-"):
        raise BadParameterError(
            f"the image {name!r} begins with a dash", fields=("image",), hint="give the name of an image"
        )
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
    mounts, wrong = [], []
    for each in _listed(text):
        source, _, rest = each.partition(":")
        target, _, mode = rest.partition(":")
        target = target or source
        if source.startswith("/") and target.startswith("/") and mode in ("", "rw", "ro"):
            mounts.append(_Mount(source, target, mode != "ro"))
        else:
            wrong.append(each)
    if wrong:
        raise BadParameterError(
            f"parameter 'additionalBindings' has {', '.join(map(repr, wrong))}, expected /source:/target",
            fields=("additionalBindings",),
        )
    return tuple(mounts)


def _ports(text: str) -> tuple[str, ...]:
    """Return the ports of the field ``portMappings``.

    Raises
    ------
    BadParameterError
        Lists what cannot be used.
    """
    ports = tuple(_listed(text))
    hosts = [each.partition(":")[0] for each in ports]
    wrong = [each for each in ports if not all(part.isdecimal() for part in each.split(":", 1)) or ":" not in each]
    wrong += [each for each, host in zip(ports, hosts, strict=True) if hosts.count(host) > 1]
    if wrong:
        raise BadParameterError(
            f"parameter 'portMappings' has {', '.join(map(repr, wrong))}, expected host:container, each host port once",
            fields=("portMappings",),
        )
    return ports


def _listed(text: str) -> Iterator[str]:
    """Yield the parts of a field that are separated by commas; old editors write them as a list."""
    for each in text.strip("[]").split(","):
        if part := each.strip().strip("'\""):
            yield part


def _variables(text: str) -> dict[str, str] | list[str]:
    """Return the variables of the field ``env``, or the names of variables of this host.

    Raises
    ------
    BadParameterError
        The field has a wrong form.
    """
    if text in ("", "all"):
        return list(os.environ) if text else []
    try:
        variables = json.loads(text)
    except ValueError:
        variables = None
    if isinstance(variables, dict):
        return {str(name): str(value) for name, value in variables.items()}
    if isinstance(variables, list):
        return [str(name) for name in variables]
    raise BadParameterError(
        f"parameter 'env' is {text[:60]!r}, expected 'all', a JSON object of variables, or a JSON list of names",
        fields=("env",),
    )
