"""An application that fetches a URL."""

import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException

from dropflow.apps.api import App, Context
from dropflow.engine.component import Component, Parameter, Port
from dropflow.errors import AppError, BadParameterError, WorldError
from dropflow.graph.templates import Kind

__all__ = ["UrlRetrieveApp"]

_BLOCK = 1024 * 1024
_SERVER_ERROR = 500


class UrlRetrieveApp(App):
    """Fetches a URL."""

    component = Component(
        name="UrlRetrieveApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.UrlRetrieveApp",
        description="Fetches a resource by HTTP or HTTPS and writes its bytes. Any status but success fails.",
        parameters=(
            Parameter(name="url", description="What to fetch; text connected to a port 'url' takes its place."),
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
        parts = urllib.parse.urlsplit(url)
        if parts.scheme.lower() not in ("http", "https") or not parts.netloc:
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
            while block := answer.read(_BLOCK):
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
