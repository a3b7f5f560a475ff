"""Downloads of a translation, with names that are safe for browsers."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from dropflow.errors import GoneError
from dropflow.rest.content_disposition import attachment
from dropflow.rest.server.route import Request, Response
from translator.web.export import ExportForm
from translator.web.service import TranslatorService

__all__ = ["EXPORTS", "dfg_file", "exported", "pg_json", "source_file"]

EXPORTS: Mapping[str, tuple[ExportForm, str]] = MappingProxyType(
    {
        "graph.dot": ("dot", "text/vnd.graphviz"),
        "graph.graphml": ("graphml", "application/xml"),
        "graph.csv": ("csv", "text/csv"),
        "graph.edges.csv": ("edges.csv", "text/csv"),
    }
)
"""Downloads for other programs: their name in an address, what writes them, and their type."""


def dfg_file(service: TranslatorService, identity: str) -> Response:
    """Return the physical graph as a ``.dfg`` container. Raises as `TranslatorService.graph`."""
    path = service.graph(identity)
    name = service.get(identity).name
    return Response(
        body=_opened(path),
        content_type="application/octet-stream",
        headers=(attachment(f"{name}.dfg"),),
    )


def pg_json(service: TranslatorService, identity: str) -> Response:
    """Return the physical graph in DALiuGE's JSON, streamed. Raises as `TranslatorService.export`."""
    name = service.get(identity).name
    return Response(body=service.export(identity), headers=(attachment(f"{name}.pg.json"),))


def exported(service: TranslatorService, file: str, call: Request) -> Response:
    """Return one of `EXPORTS`, streamed. Raises as `TranslatorService.export`."""
    identity = call.path["translation"]
    form, content_type = EXPORTS[file]
    name = service.get(identity).name
    headers = (attachment(f"{name}.{form}"),)
    return Response(body=service.export(identity, form=form), content_type=content_type, headers=headers)


def source_file(service: TranslatorService, identity: str) -> Response:
    """Return the source, byte for byte. Raises as `TranslatorService.source`."""
    path = service.source(identity)
    name = service.get(identity).name
    # Never a type that a browser would show: the content comes from an unknown client.
    return Response(body=_opened(path), content_type="application/octet-stream", headers=(attachment(f"{name}.graph"),))


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise GoneError("the translation has been removed meanwhile", hint="translate the graph again") from error
