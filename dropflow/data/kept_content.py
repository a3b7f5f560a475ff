"""Data drops whose contents are kept by earlier sessions on the same machine: they are read where they are.

A client that knows what a session has left (`dropflow.api.drop_records.ResultInfo`) makes a graph with such drops, on
the nodes that have the contents. `dropflow.dask` does so for chunks of persisted collections. The content stays with
its session, which neither changes nor removes it on behalf of this one.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dropflow.data.store import ContentWriter, Slot
from dropflow.errors import BadGraphError, GoneError
from dropflow.execution.content_location import Handle
from dropflow.graph.components import Component
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.ids import is_session_name, session_directory_name

KEPT_CONTENT = Component(
    name="KeptContent",
    kind=Kind.DATA,
    category="KeptContent",
    dropclass="dropflow.data.repository.KeptContent",  # a name in the graphs of sessions: it stays
    description="A content that an earlier session has left on the node of the drop.",
)
"""The class is written by programs, and is in no palette."""

_FIELD = "contents"


class KeptContent(NamedTuple):
    """A content of an earlier session.

    Attributes
    ----------
    session : str
        Its session.
    drop : int
        Its row in the graph of that session.
    oid : str
        Its text id there.
    path : str
        Relative to the directory of that session.
    size : int
        Bytes.
    checksum : int
        CRC-32; 0 if it is not known.
    """

    session: str
    drop: int
    oid: str
    path: str
    size: int
    checksum: int

    def locations(self, sessions: Path) -> Iterator[Path]:
        """Yield where it may be below a directory of sessions: its own place, and those of copies for another node."""
        directory = sessions / session_directory_name(self.session)
        yield directory / self.path
        yield from sorted((directory / "copies").glob(f"{self.drop}-*.part/*"))

    def find(self, sessions: Path) -> Handle | None:
        """Return the content below a directory of sessions; None if it is not there as it was committed."""
        for path in self.locations(sessions):
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if size == self.size and path.is_file():
                return Handle(kind="file", location=str(path), size=size, checksum=self.checksum)
        return None


def kept_contents_field(contents: Mapping[str, KeptContent]) -> Argument:
    """Return the field of a template that names the contents of its drops, by the text ids of the drops."""
    return Argument(name=_FIELD, type="Object", value={oid: list(content) for oid, content in contents.items()})


class KeptContentStore:
    """Contents of earlier sessions for the drops of one template."""

    persists = True
    hands_over = False
    is_directory = False
    encoding = ""
    shared_name = ""
    unwritten: Handle | None = None
    growing = None

    def __init__(self, template: Template) -> None:
        self._name = template.name
        argument = template.argument(_FIELD)
        self._contents: Any = None if argument is None else argument.value

    def part(self, slot: Slot) -> ContentWriter:
        """Refuse: applications do not write contents of earlier sessions.

        Raises
        ------
        BadGraphError
            Always.
        """
        raise self._invalid(f"drop {slot.oid} of '{self._name}' has a producer, and is a content of an earlier session")

    def initial(self, slot: Slot) -> Handle:
        """Return the content, in the place where it is.

        Raises
        ------
        GoneError
            It is not on this machine.
        BadGraphError
            The graph names no content for the drop, or its session or path are not valid.
        """
        content = self._content(slot.oid)
        handle = content.find(Path(slot.workspace.directory).parent)
        if handle is None:
            raise GoneError(
                f"the content of {content.oid} of session {content.session!r} is not on this node any more",
                where=self._name,
                hint="the session was deleted, or the content was lost with its node: compute it again",
            )
        return handle

    def check(self) -> None:
        """Raise if the field with the contents is missing."""
        if not isinstance(self._contents, Mapping):
            raise self._invalid(f"node '{self._name}' names no contents of earlier sessions")

    def check_initial(self) -> None:
        """Raise if the field with the contents is missing."""
        self.check()

    def _content(self, oid: str) -> KeptContent:
        self.check()
        try:
            content = KeptContent(*self._contents[oid])
            path = Path(content.path)
            if is_session_name(content.session) and not path.is_absolute() and ".." not in path.parts:
                return content
        except (KeyError, TypeError):
            pass
        raise self._invalid(f"node '{self._name}' names no valid content of an earlier session for drop {oid}")

    def _invalid(self, text: str) -> BadGraphError:
        hint = f"its field '{_FIELD}' is written by programs such as dropflow.dask"
        return BadGraphError(text, where=self._name, hint=hint)
