"""Downloads of a translation, with names that are safe for browsers."""

from pathlib import Path
from typing import BinaryIO

from dropflow.errors import GoneError
from dropflow.rest.content_disposition import attachment
from dropflow.rest.route import Response
from translator.web.service import TranslatorService

__all__ = ["dfg_file", "pg_json", "source_file"]


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
