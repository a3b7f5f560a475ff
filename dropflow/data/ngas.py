"""NGAS drops: files in an archive of the Next Generation Archive System, by its HTTP interface.

Three commands are used: ``QARCHIVE`` with the file as the body of a POST, ``RETRIEVE`` and ``STATUS``. An archive has
no names for unfinished files: it takes a file as a whole, or not at all, and keeps all versions of it. Therefore a file
is archived at the end of the attempt that wrote it, and an attempt that is repeated adds a version.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import quote, unquote, urlencode, urlsplit

from dropflow.data.file_names import is_blank
from dropflow.data.remote import split_location
from dropflow.data.store import IO, common
from dropflow.data.url import UrlStore
from dropflow.errors import BadParameterError
from dropflow.graph.components import Component, Parameter
from dropflow.graph.templates import Kind

if TYPE_CHECKING:
    from xml.etree import ElementTree as ET

SERVER = (
    Parameter(name="ngasSrv", default="localhost", description="Host of the NGAS server."),
    Parameter(
        name="ngasPort",
        type="Integer",
        default=7777,
        minimum=1,
        maximum=65535,
        description="Port of the server; 443 is reached by HTTPS.",
    ),
    Parameter(
        name="ngasTimeout",
        type="Float",
        default=2.0,
        minimum=0.001,
        description="Seconds without further data, after which it fails; to archive a file may take a minute.",
    ),
    Parameter(
        name="ngasConnectTimeout",
        type="Float",
        default=2.0,
        minimum=0.001,
        description="Seconds without a connection, after which it fails; the longer one of the two counts for both.",
    ),
    Parameter(name="ngasMime", default="application/octet-stream", description="Kind of the file, for the server."),
)
"""Parameters that name a server."""

FILE_ID = Parameter(
    name="ngasFileId", description="Id of the file in the archive; made from the drop's id if it is empty."
)

NGAS = Component(
    name="NGAS",
    kind=Kind.DATA,
    category="NGAS",
    dropclass="dlg.data.drops.ngas.NgasDROP",
    aliases=("dlg.data.drops.NgasDROP", "dlg.drop.NgasDROP", "dfms.drop.NgasDROP"),
    description="A file in an NGAS archive. It is archived when its producer has succeeded, and never removed.",
    parameters=(*SERVER, FILE_ID, *common(persists=True)),
    ports=IO,
)

_HTTPS_PORT = 443
"""TCP port with which an archive is asked by HTTPS."""
_ANSWER_SECONDS = 60.0
"""Seconds in which an archive must answer; for a file that is archived, they are added."""
_REFUSED = (400, 404)
_XML_BYTES = 1 << 20
"""Bytes of an XML answer of an archive that are read."""


def ngas_url(values: Mapping[str, Any]) -> str:
    """Return the URL of a file by the parameters `SERVER` and `FILE_ID`; it ends in a slash without an id."""
    name = values["ngasFileId"]
    place = f"ngas://{str(values['ngasSrv']).strip()}:{values['ngasPort']}"
    return f"{place}/{'' if is_blank(name) else quote(str(name).strip(), safe='{}')}"


def ngas_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a location by the parameters `SERVER`."""
    seconds = max(values["ngasTimeout"], values["ngasConnectTimeout"])
    return {"seconds": seconds, "mime": values["ngasMime"]}


class NgasStore(UrlStore):
    """Files of an NGAS server."""

    component = NGAS

    def _address(self, values: Mapping[str, Any]) -> str:
        return ngas_url(values)

    def _access(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return ngas_options(values)

    def _part(self, final: str, session: str) -> str:
        """Return the final location: there are no others."""
        return final


class _Ngas:
    """The `RemoteService` of ``ngas``."""

    is_exact = True

    def check(self, url: str) -> None:
        if not urlsplit(url).hostname:
            raise BadParameterError(
                f"{url} names no server", fields=("ngasSrv",), hint="give a host, such as localhost"
            )

    def size(self, location: str) -> int:
        try:
            with _ask(location, "STATUS", "file_id") as answer:
                status = _xml(answer.read(_XML_BYTES))
        except _RefusedError as error:
            raise FileNotFoundError(str(error)) from error
        file = status.find(".//FileStatus")
        size = None if file is None else file.get("FileSize")
        if size is None or not size.isdecimal():
            raise OSError(f"the server does not report the size of {location}")
        return int(size)

    def version(self, location: str, *, trust_times: bool) -> Sequence[str]:
        return ()

    def open(self, location: str) -> BinaryIO:
        return cast(BinaryIO, _ask(location, "RETRIEVE", "file_id"))

    def put(self, path: str, location: str) -> None:
        with open(path, "rb") as stream:  # noqa: PTH123 - text, once a content
            size = os.fstat(stream.fileno()).st_size
            with _ask(location, "QARCHIVE", "filename", stream, size) as answer:
                status = _xml(answer.read(_XML_BYTES)).find("Status")
        if status is None or status.get("Status") != "SUCCESS":
            raise OSError("the server did not confirm the file" if status is None else status.get("Message", ""))

    def rename(self, part: str, final: str) -> None:
        """Do nothing: the file is archived."""

    def remove(self, location: str) -> None:
        """Do nothing: archives keep what they have."""


SERVICE = _Ngas()
"""The service for `dropflow.data.remote`."""


class _RefusedError(OSError):
    """The server refused a request."""


def _ask(location: str, command: str, name: str, body: BinaryIO | None = None, size: int = 0) -> Any:
    """Send a command about the file of a location, and return the answer, to be closed.

    Raises
    ------
    OSError
        The server refused it (`_RefusedError`), did not answer, or answered by something else.
    """
    # Every process that runs drops imports this module: most reach no archive.
    from http.client import HTTPException  # noqa: PLC0415
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import Request, urlopen  # noqa: PLC0415

    url, options = split_location(location)
    parts = urlsplit(url)
    scheme = "https" if parts.port == _HTTPS_PORT else "http"
    query = {name: unquote(parts.path.lstrip("/"))}
    seconds = float(options.get("seconds", _ANSWER_SECONDS))
    headers = {}
    if body is not None:
        query["mime_type"] = str(options.get("mime", ""))
        headers = {"Content-Type": query["mime_type"], "Content-Length": str(size)}
        seconds += _ANSWER_SECONDS
    request = Request(f"{scheme}://{parts.netloc}/{command}?{urlencode(query)}", data=body, headers=headers)  # noqa: S310 - see scheme
    try:
        return urlopen(request, timeout=seconds)  # noqa: S310
    except HTTPError as error:
        with error:
            text = f"{command} was answered by {error.code} {error.reason}{_message(error.read(_XML_BYTES))}"
            raise (_RefusedError if error.code in _REFUSED else OSError)(text) from error
    except HTTPException as error:
        raise OSError(f"{command} was not answered by HTTP: {error!r}") from error


def _message(body: bytes) -> str:
    """Return the message in the status of an answer."""
    try:
        status = _xml(body).find("Status")
    except OSError:
        return ""
    return "" if status is None else f": {status.get('Message', '')}"


def _xml(body: bytes) -> "ET.Element":
    from xml.etree import ElementTree as ET  # noqa: PLC0415 - as in _ask

    try:
        return ET.fromstring(body)  # noqa: S314 - of the archive that the graph names, up to 1 MB
    except ET.ParseError as error:
        raise OSError(f"the answer is not that of an NGAS server: {error}") from error
