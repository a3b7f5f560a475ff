"""One input of an attempt."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dropflow.apps.encodings import canonical, decode, decode_all
from dropflow.apps.template_cache import effective
from dropflow.data.read_content import EMPTY, open_content, read, view
from dropflow.data.storage_errors import storage_errors
from dropflow.engine.api import Handle, Input
from dropflow.errors import AppError, UsageError
from dropflow.ids import safe_name
from dropflow.states import DropState

if TYPE_CHECKING:
    from dropflow.apps.attempt_context import AttemptContext

__all__ = ["AttemptInput"]


class AttemptInput:
    """`dropflow.apps.api.InputData` of one attempt; `dropflow.apps.encodings` decodes it."""

    __slots__ = ("_attempt", "_handle", "_path", "_template", "name", "oid", "port", "state")

    def __init__(self, attempt: "AttemptContext", edge: Input) -> None:
        plans = attempt.plans
        self._attempt = attempt
        self._handle = edge.handle
        self._template = edge.template
        self._path: Path | None = None
        self.port = plans.links[edge.link].target_port
        self.oid = edge.oid
        self.name = plans.templates[edge.template].name
        self.state = edge.state

    @property
    def ok(self) -> bool:
        """Whether there is content to read."""
        return self.state is DropState.COMPLETED

    @property
    def is_open(self) -> bool:
        """Whether the content is still being written."""
        return False

    @property
    def size(self) -> int:
        """Bytes of content."""
        return self._content.size

    @property
    def is_directory(self) -> bool:
        """Whether the content is a directory."""
        return self._content.kind == "directory"

    @property
    def is_text(self) -> bool:
        """Whether the content was declared or written as text."""
        return self._content.text

    @property
    def is_joint(self) -> bool:
        """Whether several producers write the content."""
        return bool(self._attempt.plans.templates[self._template].collects)

    @property
    def is_collected(self) -> bool:
        """Whether the graph collects at the port."""
        return self.port in self._attempt.plan.template.collects

    @property
    def in_memory(self) -> bool:
        """Whether it is a memory drop, which only this session writes."""
        return self._content.kind in ("bytes", "shm")

    def view(self) -> memoryview:
        """The whole content, without a copy."""
        return view(self._content)

    def read(self) -> bytes:
        """The whole content."""
        return read(self._content)

    def open(self) -> BinaryIO:
        """A binary stream over the content; close it."""
        return open_content(self._content)

    def value(self, encoding: str | None = None) -> Any:
        """The content decoded with `encoding`, by default that of the port; a list if it holds several values."""
        return decode(self._encoding(encoding), self)

    def values(self, encoding: str | None = None) -> list[Any]:
        """As `value`, but always a list, also for one value or none."""
        return decode_all(self._encoding(encoding), self)

    def _encoding(self, encoding: str | None) -> str:
        attempt = self._attempt
        attempt.check()
        name = canonical(encoding) if encoding else attempt.plan.encoding(self.port)
        return effective(name, attempt.plans.store(self._template))

    @property
    def path(self) -> Path:
        """A file or directory with the content. Content in memory is first written to a temporary file."""
        if self._path is None:
            content = self._content
            if content.kind == "null":
                self._path = Path("/dev/null")
            elif content.kind == "bytes":
                self._path = self._written(content)
            elif content.kind == "url":
                raise UsageError(
                    f"the content is at {content.location}, and not on this machine",
                    hint="give the port the encoding 'dataurl'",
                )
            else:
                self._path = Path(content.location)
        return self._path

    @property
    def url(self) -> str:
        """URL of the content."""
        content = self._content
        return content.location if content.kind == "url" else self.path.as_uri()

    def close(self) -> None:
        """Close open streams; nothing to do for a complete input."""

    def warn(self, text: str) -> None:
        """Write a warning to the log of the application."""
        self._attempt.log(text, "WARNING")

    @property
    def _content(self) -> Handle:
        if self.state is not DropState.COMPLETED:
            raise AppError(
                f"input '{self.name}' ({self.oid}) has no content: it is {self.state.name}",
                hint="an application that tolerates failed inputs must look at their state first",
            )
        return self._handle or EMPTY

    def _written(self, content: Handle) -> Path:
        path = Path(self._attempt.scratch(), safe_name(self.name, fallback="content"))
        with storage_errors("write", path):
            path.write_bytes(content.body)
        return path
