"""Services: commands that run alongside other applications, from the drop that starts them to the drop that stops them.

A service runs in the process of its session. It is *ready* when each file at the path of an output exists and is not
empty, and the command in its field `ready` succeeds, if it has one. Data that it writes later do not count.
"""

import math
import os
import shlex
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from dropflow.apps.app_interface import App, Context
from dropflow.apps.command import Command
from dropflow.apps.shell import COMMAND_PARAMETERS, BashShellApp
from dropflow.clock import SystemClock
from dropflow.errors import AppError, DropflowError, Interrupted
from dropflow.execution.drop_log import LOG_LIMIT
from dropflow.graph.components import Component, Parameter
from dropflow.graph.templates import Kind, Template
from dropflow.host.processors import thread_variables
from dropflow.ids import drop_file_name

_STOP_SECONDS = 10.0
"""Seconds that a service may clean up after it was stopped, if the caller gives no other time."""
_SESSION_END_SECONDS = 1.0
"""Seconds that each service may clean up at the end of the session."""
Key = tuple[str, str, tuple[int, ...]]
_LOCK = threading.Lock()
"""Attempts that start and stop services run in several threads, and sessions end in others."""
_PAUSE = 0.05
"""Seconds between two checks of a file that another program writes: no event reports that."""

# The services that run in this process, by the directory of their session; they end with it.


class RunningService:
    """A command that is followed by a separate thread.

    Parameters
    ----------
    command : str
        Text for bash.
    directory : Path
        Its working directory.
    environment : mapping of str to str
        Its environment.
    sink : callable
        Gets its output in blocks.
    oid : str
        Id of the drop that started it.
    """

    def __init__(
        self, command: str, directory: Path, environment: Mapping[str, str], sink: Callable[[bytes], object], oid: str
    ) -> None:
        self.oid = oid
        self.status: int | None = None
        """Exit status, None while it runs."""
        self.error: DropflowError | None = None
        """Why it could not be started."""
        self._command = Command(command, directory, environment, sink)
        self._thread = threading.Thread(target=self._run, name=f"service-{oid}", daemon=True)
        self._thread.start()

    def stop(self, grace: float = _STOP_SECONDS) -> None:
        """Stop the command with all its processes, and wait for its end."""
        self._command.stop(grace)
        self._thread.join(grace + _STOP_SECONDS)

    def _run(self) -> None:
        status = 1
        try:
            status = self._command.run()
        except Interrupted:
            pass
        except DropflowError as error:
            self.error = error
        finally:
            self.status = status


_RUNNING: dict[Key, RunningService] = {}


def add_service(key: Key, service: RunningService) -> None:
    """Add a service; stop a service of an earlier attempt."""
    with _LOCK:
        earlier, _RUNNING[key] = _RUNNING.get(key), service
    if earlier is not None:
        earlier.stop(0.0)


def remove_service(key: Key) -> RunningService | None:
    """Remove and return a service; None if it does not run here."""
    with _LOCK:
        return _RUNNING.pop(key, None)


def end_services(directory: str) -> None:
    """Stop the services of a session that ends."""
    with _LOCK:
        services = [_RUNNING.pop(key) for key in list(_RUNNING) if key[0] == directory]
    for service in services:
        service.stop(_SESSION_END_SECONDS)


class ServiceApp(BashShellApp):
    """Starts a command, and leaves it running."""

    environment_fields: ClassVar[tuple[str, ...]] = ()

    component = Component(
        name="ServiceApp",
        kind=Kind.APP,
        category="BashShellApp",
        dropclass="dropflow.apps.service.ServiceApp",
        description="Starts the command of a Service, and completes when it is ready: when its outputs are written.",
        parameters=(
            *COMMAND_PARAMETERS,
            Parameter(
                name="ready",
                parameter_type="ComponentParameter",
                description="A command that succeeds once the service can be used, such as pg_isready; it is repeated.",
            ),
            Parameter(
                name="start_timeout",
                type="Float",
                default=60.0,
                minimum=0.0,
                parameter_type="ComponentParameter",
                description="Seconds after which a service that is not ready has failed.",
            ),
        ),
    )
    waits: ClassVar[bool] = True
    fuses: ClassVar[bool] = False

    def run(self, context: Context) -> None:
        """Start the command and wait until it is ready.

        Raises
        ------
        AppError
            The command cannot be started, has ended, or is not ready in time.
        """
        command = self.filled(context)
        key = (str(context.directory), self.template.key, tuple(context.index))
        context.directory.mkdir(parents=True, exist_ok=True)
        log = context.directory.parent / "logs" / f"{drop_file_name(context.oid)}.log"
        threads = thread_variables(self.template.cpus, os.environ)
        environment = {**threads, **os.environ, "DLG_UID": context.oid, "DLG_SESSION_ID": context.session}
        service = RunningService(command, context.directory, environment, _limited(log), context.oid)
        add_service(key, service)
        try:
            self._await(context, service, [output.path for output in context.outputs])
        except BaseException:
            remove_service(key)
            service.stop(0.0)
            raise
        context.log(f"the service is ready: {self.command[:200]}")

    def _await(self, context: Context, service: RunningService, files: list[Path]) -> None:
        ready, limit = str(self.parameters["ready"] or "").strip(), float(self.parameters["start_timeout"])
        clock = SystemClock()
        end = clock.monotonic() + limit
        while True:
            if service.error is not None:
                raise service.error
            if service.status is not None:
                raise AppError(
                    f"the service ended with status {service.status} before it was ready: {self.command[:200]}",
                    hint="see the log of this drop; a service runs until it is stopped",
                )
            missing = [file for file in files if not (file.exists() and file.stat().st_size)]
            if not missing and (not ready or context.command(_within(ready, end - clock.monotonic()), {}) == 0):
                return
            if clock.monotonic() > end:
                what = f"it has written nothing to {missing[0]}" if missing else f"'{ready}' does not succeed"
                hint = "see the log of this drop, or raise start_timeout"
                raise AppError(f"the service is not ready after {limit:g} s: {what}", hint=hint)
            context.wait(_PAUSE)


class StopServiceApp(App):
    """Stops a service."""

    component = Component(
        name="StopServiceApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dropflow.apps.service.StopServiceApp",
        description="Stops a service after its last user: SIGTERM, and SIGKILL ten seconds later.",
    )
    waits: ClassVar[bool] = True
    fuses: ClassVar[bool] = False

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        self.service = template.key.removesuffix("-stop")

    def run(self, context: Context) -> None:
        """Stop the service of this instance.

        Raises
        ------
        AppError
            The service has ended before.
        """
        service = remove_service((str(context.directory), self.service, tuple(context.index)))
        if service is None:
            context.log("the service does not run in this process, or was stopped before", "WARNING")
            return
        if service.status is not None:
            raise AppError(
                f"the service ended with status {service.status} before its last user",
                hint=f"see the log of {service.oid}",
            )
        service.stop()
        context.log("the service was stopped")


def _within(command: str, seconds: float) -> str:
    """Return a command that is ended after a time: one that asks a service may wait for it without end."""
    return f"timeout -k 1 {max(math.ceil(seconds), 1)} /bin/bash -c {shlex.quote(command)}"


def _limited(log: Path) -> Callable[[bytes], object]:
    """Return a function that appends the output of a service to a log, up to a size."""
    lock, left = threading.Lock(), [LOG_LIMIT]

    def write(block: bytes) -> None:
        with lock:
            part, left[0] = block[: left[0]], max(left[0] - len(block), 0)
        if part:
            with suppress(OSError), log.open("ab") as file:  # a full disk does not end the service
                file.write(part)

    return write
