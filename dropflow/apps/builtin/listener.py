"""An application that receives data from one TCP client."""

import socket

from dropflow.apps.api import App, Context
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError, WorldError
from dropflow.graph.templates import Kind

__all__ = ["SocketListenerApp"]

_PATIENCE = 0.25
"""Seconds between two checks for cancellation. `Context` cannot wake a thread that waits for a socket."""


class SocketListenerApp(App):
    """Listens for one client and writes what it sends."""

    component = Component(
        name="SocketListenerApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.socket_listener.SocketListenerApp",
        description="Listens on a TCP port, accepts exactly one client, and writes what it sends, until it closes, to "
        "every output. The address is in the log.",
        parameters=(
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
        ports=(Port(name="data", usage="OutputPort", encoding="raw", description="What the client sent."),),
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
            if not block:
                return
            for output in context.outputs:
                output.write(block)


def _listen(host: str, port: int, *, reuse: bool) -> socket.socket:
    server = socket.create_server((host, port), backlog=1, reuse_port=False) if reuse else _strict(host, port)
    server.settimeout(_PATIENCE)
    return server


def _strict(host: str, port: int) -> socket.socket:
    """A listening socket without SO_REUSEADDR, which `socket.create_server` always sets."""
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
