"""Applications that download, listen, and write to stores."""

import socket
import urllib.error
import urllib.request
from http.client import HTTPException

from dropflow.api.addresses import http_parts
from dropflow.apps.app_interface import App, Context, InputData
from dropflow.apps.encodings import usable
from dropflow.apps.parameters import NOT_DETERMINISTIC
from dropflow.clock import SystemClock
from dropflow.data.ngas import FILE_ID, SERVER, ngas_options, ngas_url
from dropflow.data.remote import beside, check_url, commit_remote, remove_remote, upload, url_of
from dropflow.data.url import URL, named_location, refuse_read_only
from dropflow.errors import AppError, BadParameterError, WorldError
from dropflow.graph.components import Component, Parameter, Port
from dropflow.graph.templates import Kind

_BLOCK_BYTES = 1024 * 1024
"""Bytes of a download that are read at once."""
_SERVER_ERROR = 500
"""First HTTP status that blames the server: a later attempt may succeed."""
_PATIENCE = 0.25
"""Seconds between two checks for cancellation. `Context` cannot wake a thread that waits for a socket."""
_URL_PARAMETERS = tuple(parameter for parameter in URL.parameters if parameter.name in ("url", "options"))


class UrlRetrieveApp(App):
    """Fetches a URL."""

    component = Component(
        name="UrlRetrieveApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.UrlRetrieveApp",
        description="Fetches a resource by HTTP or HTTPS and writes its bytes. Any status but success fails.",
        parameters=(
            NOT_DETERMINISTIC,
            Parameter(name="url", description="Address to fetch; text connected to a port 'url' takes its place."),
            Parameter(
                name="timeout",
                type="Float",
                default=30.0,
                minimum=0.001,
                description="Seconds without an answer or any further data, after which it fails.",
            ),
            Parameter(
                name="max_size",
                type="Integer",
                default=1 << 34,
                minimum=0,
                description="Bytes above which it fails rather than fill the disk; 16 GiB by default.",
            ),
        ),
        ports=(Port(name="data", usage="OutputPort", encoding="raw", description="The bytes of the resource."),),
    )
    waits = True

    def run(self, context: Context) -> None:
        """Fetch.

        Raises
        ------
        BadParameterError
            The URL is not an HTTP or HTTPS URL.
        AppError
            The server refused the request, or the resource is too large.
        WorldError
            The server did not answer or failed; trying again may help.
        """
        data = context.input("url")
        url = str(data.value("utf-8")).strip() if data is not None and data.ok else self.parameters["url"].strip()
        if http_parts(url) is None:
            raise BadParameterError(
                f"url is {url!r}, not an http:// or https:// address", where=context.name, hint="give the full address"
            )
        try:
            self._fetch(context, url)
        except urllib.error.HTTPError as problem:
            with problem:
                text = f"{url} answered {problem.code} {problem.reason}"
                raise (WorldError if problem.code >= _SERVER_ERROR else AppError)(text) from problem
        except (OSError, HTTPException) as problem:
            raise WorldError(
                f"{url} cannot be fetched: {problem}", hint="check the address, and that the server is up"
            ) from problem

    def _fetch(self, context: Context, url: str) -> None:
        limit, size = self.parameters["max_size"], 0
        with _opener().open(url, timeout=self.parameters["timeout"]) as answer:
            while block := answer.read(_BLOCK_BYTES):
                size += len(block)
                if size > limit:
                    raise AppError(f"{url} is larger than max_size ({limit} bytes)")
                for output in context.outputs:
                    output.write(block)
                context.wait(0)  # raises if the session was cancelled
            promised = answer.headers.get("Content-Length", "")
        if promised.isdecimal() and int(promised) != size:
            raise WorldError(f"{url} cannot be fetched whole: the connection ended after {size} of {promised} bytes")
        context.log(f"fetched {size} bytes from {url}")


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener for HTTP only: that of urllib also opens files and FTP, and follows redirections to them."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


# An application that receives data from one TCP client.


class SocketListenerApp(App):
    """Listens for one client and writes what it sends."""

    component = Component(
        name="SocketListenerApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.socket_listener.SocketListenerApp",
        description="Listens on a TCP port, accepts exactly one client, and writes its data, until it closes, to "
        "every output. The address is in the log.",
        parameters=(
            NOT_DETERMINISTIC,
            Parameter(name="host", default="localhost", description="Address to listen on; 0.0.0.0 for all."),
            Parameter(
                name="port",
                type="Integer",
                default=1111,
                minimum=0,
                maximum=65535,
                description="Port to listen on; 0 for any that is free.",
            ),
            Parameter(name="bufsize", type="Integer", default=4096, minimum=1, description="Bytes taken at a time."),
            Parameter(
                name="reuseAddr",
                type="Boolean",
                default=False,
                aliases=("reuse_addr",),
                description="Use the port even if an earlier connection on it is still in TIME_WAIT.",
            ),
        ),
        ports=(Port(name="data", usage="OutputPort", encoding="raw", description="Data from the client."),),
    )
    waits = True

    def run(self, context: Context) -> None:
        """Listen.

        Raises
        ------
        AppError
            An input is connected.
        WorldError
            The port is not available, or the connection broke.
        """
        if context.inputs:
            raise AppError("SocketListenerApp takes no inputs: it is a source", hint="remove the edges into it")
        host, port = self.parameters["host"], self.parameters["port"]
        try:
            with _listen(host, port, reuse=self.parameters["reuseAddr"]) as server:
                context.log(f"listening on {host}:{server.getsockname()[1]}")
                with _accept(context, server) as client:
                    self._take(context, client)
        except OSError as problem:
            raise WorldError(f"cannot listen on {host}:{port}: {problem}", hint="choose another port") from problem

    def _take(self, context: Context, client: socket.socket) -> None:
        client.settimeout(_PATIENCE)
        while True:
            context.wait(0)
            try:
                block = client.recv(self.parameters["bufsize"])
            except TimeoutError:
                continue
            except OSError as problem:
                text = f"the client broke the connection: {problem}"
                raise WorldError(text, hint="have the client send its data again") from problem
            if not block:
                return
            for output in context.outputs:
                output.write(block)


def _listen(host: str, port: int, *, reuse: bool) -> socket.socket:
    server = socket.create_server((host, port), backlog=1, reuse_port=False) if reuse else _strict(host, port)
    server.settimeout(_PATIENCE)
    return server


def _strict(host: str, port: int) -> socket.socket:
    """Return a listening socket without SO_REUSEADDR, which `socket.create_server` always sets."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    server = socket.socket(family, kind, protocol)
    try:
        server.bind(address)
        server.listen(1)
    except OSError:
        server.close()
        raise
    return server


def _accept(context: Context, server: socket.socket) -> socket.socket:
    while True:
        context.wait(0)
        try:
            client, _ = server.accept()
        except TimeoutError:
            continue
        return client


# Applications that write their inputs to stores.


class ExternalStoreApp(App):
    """Writes each input to a store."""

    component = Component(
        name="ExternalStoreApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.archiving.ExternalStoreApp",
        description="Writes each input to a URL that fsspec reaches, under a temporary name first. A URL drop does the "
        "same for an output. With several inputs, the URL needs a placeholder.",
        parameters=(NOT_DETERMINISTIC, *_URL_PARAMETERS),
        ports=(Port(name="input", usage="InputPort", description="Data to write."),),
    )
    waits = True

    def check(self) -> None:
        """Raise if the URL is not valid.

        Raises
        ------
        BadParameterError, MissingDependencyError
            As for a URL drop.
        """
        location = self._location("prefix_key_0", 0.0)
        check_url(url_of(location))
        refuse_read_only(location)

    def run(self, context: Context) -> None:
        """Write.

        Raises
        ------
        AppError
            Inputs have the same URL, or one is a directory.
        StorageError
            The store does not take one.
        """
        inputs = usable(context)
        places = [self._location(data.oid, SystemClock().now()) for data in inputs]
        if len(set(places)) < len(places):
            raise AppError(
                f"{len(places)} inputs would be written to {url_of(places[0])}", hint="put {uid} into the name"
            )
        for data, final in zip(inputs, places, strict=True):
            self._store(context, data, final)

    def _store(self, context: Context, data: InputData, final: str) -> None:
        if data.is_directory:
            raise AppError(f"input '{data.name}' is a directory", hint="pack it into a file first")
        part = self._part(final, context)
        try:
            upload(str(data.path), part, final)
            if part != final:
                commit_remote(part, final)
        except BaseException:
            if part != final:
                remove_remote([part])
            raise
        context.log(f"wrote {data.size} bytes to {url_of(final)}")

    def _location(self, oid: str, now: float) -> str:
        """Return where the content of an input is written."""
        return named_location(self.parameters["url"], self.parameters["options"] or {}, oid, now)

    def _part(self, final: str, context: Context) -> str:
        """Return where it is until it is complete."""
        return beside(final, context.session)


class NgasArchivingApp(ExternalStoreApp):
    """Writes each input to an NGAS archive."""

    component = Component(
        name="NgasArchivingApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.archiving.NgasArchivingApp",
        description="Archives each input in an NGAS server. An NGAS drop does the same for an output.",
        parameters=(NOT_DETERMINISTIC, *SERVER, FILE_ID),
        ports=ExternalStoreApp.component.ports,
    )

    def _location(self, oid: str, now: float) -> str:
        return named_location(ngas_url(self.parameters), ngas_options(self.parameters), oid, now)

    def _part(self, final: str, context: Context) -> str:
        return final
