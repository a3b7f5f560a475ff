"""Applications for tests that read and write streams in unusual ways."""

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dropflow.apps.app_interface import App, Context, InputData
from dropflow.errors import AppError
from dropflow.graph.components import Component
from dropflow.graph.templates import Argument, Kind

_BLOCK = 1 << 20


def fields(name: str, **values: Any) -> dict[str, Any]:
    """Return the fields of a template that runs one of these applications."""
    arguments = tuple(Argument(name=key, value=value, type="Json") for key, value in values.items())
    return {"component": f"tests.streaming_apps.{name}", "arguments": arguments}


def _component(name: str) -> Component:
    return Component(
        name=name,
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass=f"tests.streaming_apps.{name}",
        description="For tests.",
    )


class _Trial(App):
    """An application with untyped fields."""

    @property
    def values(self) -> Mapping[str, Any]:
        """Value of each field."""
        return {argument.name: argument.value for argument in self.template.arguments}

    def wait_for(self, context: Context, sign: str) -> None:
        """Wait until a file exists."""
        while not Path(sign).exists():
            context.wait(0.01)


class Beginner(_Trial):
    """Writes the text `begin`, waits for the file `sign`, then writes `rest`: text, or the numbers of bytes."""

    component = _component("Beginner")

    def run(self, context: Context) -> None:
        """Write."""
        rest = self.values["rest"]
        for output in context.outputs:
            output.write(self.values["begin"])
        self.wait_for(context, self.values["sign"])
        for output in context.outputs:
            output.write(rest if isinstance(rest, str) else bytes(rest))


class Skipper(_Trial):
    """Writes to all outputs, waits for the file `sign`, and then skips the first output."""

    component = _component("Skipper")

    def run(self, context: Context) -> None:
        """Write, wait and skip."""
        for output in context.outputs:
            output.write("begun")
        self.wait_for(context, self.values["sign"])
        context.outputs[0].skip()


def _streamed(data: InputData) -> bytes:
    with data.open() as stream:
        return stream.read()


_USES: Mapping[str, Callable[[InputData], Any]] = {
    "open": _streamed,
    "read": lambda data: data.read(),
    "view": lambda data: bytes(data.view()),
    "raw": lambda data: data.value("raw"),
    "text": lambda data: data.value("utf-8"),
    "path": lambda data: data.path.read_bytes(),
    "url": lambda data: Path(data.url.removeprefix("file://")).read_bytes(),
    "size": lambda data: str(data.size),
    "kind": lambda data: f"{data.size} {data.is_text} {data.is_directory} {data.in_memory}",
}


class Reader(_Trial):
    """Makes the file `sign` when it runs, then reads its inputs in the way `how`, and writes their contents."""

    component = _component("Reader")
    streams = True

    def run(self, context: Context) -> None:
        """Read."""
        Path(self.values["sign"]).touch()
        got = [_USES[self.values["how"]](data) for data in context.inputs]
        for output in context.outputs:
            for each in got:
                output.write(each)


class Flood(_Trial):
    """Copies its inputs, or writes `megabytes` without input. The second output is the memory that it used."""

    component = _component("Flood")
    streams = True

    def run(self, context: Context) -> None:
        """Copy the inputs."""
        flow, memory = context.outputs
        for _ in range(self.values.get("megabytes", 0)):
            flow.write(bytes(_BLOCK))
        for data in context.inputs:
            with data.open() as stream:
                for block in iter(partial(stream.read, _BLOCK), b""):
                    flow.write(block)
        # Not ru_maxrss of getrusage(2), which a process has from its parent.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        memory.write(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


class Mixer(_Trial):
    """Writes its id, then the checksum of each input when that was read; `fails`, or skips the outputs `skips`."""

    component = _component("Mixer")
    streams = True

    def run(self, context: Context) -> None:
        """Write the checksums."""
        outputs = context.outputs
        for output in outputs:
            output.write(f"{context.oid}\n")
        for number, data in enumerate(context.inputs):
            line = f"{data.state.name}\n" if not data.ok else f"{self._checksum(data, number)}\n"
            for output in outputs:
                output.write(line if number % 2 else line.encode())
        if self.values["fails"]:
            raise AppError("fails is set", hint="clear fails")
        for number in self.values["skips"]:
            if number < len(outputs):
                outputs[number].skip()

    def _checksum(self, data: InputData, number: int) -> int:
        if number % 3 == 1:
            return zlib.crc32(data.read())
        checksum = 0
        with data.open() as stream:
            for block in iter(partial(stream.read, 7), b""):
                checksum = zlib.crc32(block, checksum)
        return checksum
