"""URL and S3 drops: content in a store outside of this machine."""

from collections.abc import Mapping
from typing import Any

from dropflow.data.file import FileWriter
from dropflow.data.file_names import fill_name, is_blank
from dropflow.data.remote import beside, check_url, existing, location_of, upload, url_of
from dropflow.data.store import IO, ContentWriter, Slot, common
from dropflow.errors import AppError, BadParameterError
from dropflow.execution.content_location import Handle
from dropflow.graph.components import Component, Parameter, read
from dropflow.graph.templates import Kind, Template
from dropflow.ids import drop_file_name

URL = Component(
    name="URL",
    kind=Kind.DATA,
    category="File",
    dropclass="dropflow.data.url.UrlStore",
    description="Content at a URL that fsspec reaches: s3://, https:// (only to read), sftp://, file:// and others. It "
    "is written under a temporary name and renamed when it is committed. It is never removed.",
    parameters=(
        Parameter(
            name="url",
            description="Where the content is. Environment variables and {uid}, {humanKey}, {auto}, {datetime} and "
            "{dlg} are replaced; a name is added after a final slash.",
        ),
        Parameter(
            name="options",
            type="Json",
            parameter_type="ComponentParameter",
            description='Options of fsspec for the protocol, such as {"anon": true} for public buckets; no secrets.',
        ),
        *common(persists=True),
    ),
    ports=IO,
)

S3 = Component(
    name="S3",
    kind=Kind.DATA,
    category="S3",
    dropclass="dlg.data.drops.s3_drop.S3DROP",
    aliases=("dlg.data.drops.S3DROP", "dlg.drop.S3DROP"),
    description="An object in a bucket, as a URL drop. Each host takes the credentials from its environment, from "
    "~/.aws, or from its role.",
    parameters=(
        Parameter(name="Bucket", description="Name of the bucket, which must exist."),
        Parameter(
            name="Key",
            description="Name of the object, as the URL of a URL drop; made from the drop's id if it is empty.",
        ),
        Parameter(
            name="profile_name",
            parameter_type="ComponentParameter",
            description="Section of ~/.aws/credentials on each host.",
        ),
        Parameter(
            name="endpoint_url",
            parameter_type="ComponentParameter",
            description="Address of the server; by default that of Amazon, or AWS_ENDPOINT_URL.",
        ),
        *(
            Parameter(
                name=name,
                type="Password",
                parameter_type="ComponentParameter",
                description="Refused if it is not empty: secrets do not belong in graphs.",
            )
            for name in ("aws_access_key_id", "aws_secret_access_key")
        ),
        *common(persists=True),
    ),
    ports=IO,
)

_READ_ONLY = ("http", "https")


class UrlWriter:
    """Collects a content in a file, and writes that to a store under a temporary name.

    Parameters
    ----------
    slot : Slot
        Slot of the content.
    part, final : str
        Locations before and after the commit.
    """

    def __init__(self, slot: Slot, part: str, final: str) -> None:
        workspace = slot.workspace
        self._workspace = workspace
        self._part = part
        self._final = final
        name = url_of(final).rstrip("/").rpartition("/")[2]
        path = workspace.part_name(slot.drop, slot.attempt, slot.number)
        # The final path gives programs the base name only: the file is removed after it was sent.
        self._file = FileWriter(
            path, final=f"{path}/{name}", directory_for=workspace.part_directory, shielded=slot.shielded
        )

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append to the file."""
        return self._file.write(data, text=text)

    def path(self) -> str:
        """Return the temporary path of the file."""
        return self._file.path()

    def finish(self) -> Handle:
        """Send the file to the store, and remove it.

        Raises
        ------
        AppError
            A program made a directory.
        StorageError
            The store does not take it.
        """
        try:
            made = self._file.finish()
            if made.kind == "directory":
                raise AppError(
                    f"the program made a directory, which cannot be written to {url_of(self._final)}",
                    hint="write one file, such as a tar archive of it",
                )
            if self._part != self._final:
                self._workspace.note_outside(self._part)
            upload(made.location, self._part, self._final)
        finally:
            self._file.abandon()
        return Handle(
            kind="url",
            location=self._part,
            final=self._final,
            size=made.size,
            checksum=made.checksum,
            text=made.text,
        )

    def abandon(self) -> None:
        """Remove the file. What is in the store already is removed by the repository."""
        self._file.abandon()


def named_location(url: str, options: Mapping[str, Any], oid: str, now: float) -> str:
    """Return the location of a drop by a URL with placeholders.

    Raises
    ------
    BadParameterError
        There is an unknown placeholder, a variable that is not set, or a secret.
    """
    filled = fill_name(url, oid=oid, now=now)
    return location_of(f"{filled}{drop_file_name(oid)}" if filled.endswith("/") else filled, options)


def refuse_read_only(location: str) -> None:
    """Raise if nothing can be written to a location by its protocol.

    Raises
    ------
    BadParameterError
        It is HTTP.
    """
    if location.partition("://")[0] in _READ_ONLY:
        raise BadParameterError(
            f"nothing can be written to {url_of(location)} by HTTP",
            fields=("url",),
            hint="name a store such as s3:// or sftp://",
        )


class UrlStore:
    """Contents at URLs that the parameters of one template name."""

    persists = True
    hands_over = False
    is_directory = False
    encoding = ""
    unwritten: Handle | None = None
    growing = None
    component = URL

    def __init__(self, template: Template) -> None:
        self._template = template
        values = read(self.component, template)
        self._url = self._address(values)
        self._options = self._access(values)

    def _address(self, values: Mapping[str, Any]) -> str:
        """Return the URL of the parameters, with placeholders."""
        return "" if is_blank(values["url"]) else str(values["url"]).strip()

    def _access(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the parameters."""
        options = values["options"] or {}
        if not isinstance(options, dict):
            raise BadParameterError(
                f"parameter 'options' is {options!r:.60}, expected an object of names and values",
                where=self._template.name,
                fields=("options",),
                hint='write for example {"anon": true}',
            )
        return options

    @property
    def shared_name(self) -> str:
        """The URL that all drops of the template share; empty if each has its own."""
        try:
            first, second = (self._location(oid, 0.0) for oid in ("prefix_key_0-0", "prefix_key_0-1"))
        except BadParameterError:
            return ""
        return first if first == second else ""

    def part(self, slot: Slot) -> ContentWriter:
        """Return a writer for a temporary object beside the final one.

        Raises
        ------
        BadParameterError
            Nothing can be written by its protocol.
        """
        final = self._place(slot)
        refuse_read_only(final)
        return UrlWriter(slot, self._part(final, slot.workspace.session), final)

    def initial(self, slot: Slot) -> Handle:
        """Return the existing content.

        Raises
        ------
        BadFileError
            There is none.
        StorageError
            The store cannot be reached.
        """
        return existing(self._place(slot), self._template.name)

    def check(self) -> None:
        """Raise if the URL is not valid for any drop, or a package for it is missing."""
        check_url(url_of(self._location("prefix_key_0", 0.0)))

    def check_initial(self) -> None:
        """Accept all parameters: whether the content exists is checked when the drop starts."""

    def _place(self, slot: Slot) -> str:
        """Return the location of a drop."""
        return self._location(slot.oid, slot.now)

    def _part(self, final: str, session: str) -> str:
        """Return a location for what is not committed: `beside`, unless contents are written to their final place."""
        return beside(final, session)

    def _location(self, oid: str, now: float) -> str:
        if not self._url:
            raise BadParameterError(
                f"node '{self._template.name}' does not name its {self.component.parameters[0].name}",
                where=self._template.name,
                fields=(self.component.parameters[0].name,),
                hint="fill the field in",
            )
        return named_location(self._url, self._options, oid, now)


class S3Store(UrlStore):
    """Objects in a bucket."""

    component = S3

    def _address(self, values: Mapping[str, Any]) -> str:
        bucket, key = str(values["Bucket"] or "").strip(), values["Key"]
        return f"s3://{bucket}/{'' if is_blank(key) else str(key).strip().lstrip('/')}" if bucket else ""

    def _access(self, values: Mapping[str, Any]) -> dict[str, Any]:
        options = {"profile": values["profile_name"], "endpoint_url": values["endpoint_url"]}
        options |= {name: values[name] for name in ("aws_access_key_id", "aws_secret_access_key")}
        return {name: value for name, value in options.items() if not is_blank(value)}
