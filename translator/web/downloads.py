"""Files of a translation, as answers that browsers save under a safe name."""

from dropflow.rest.disposition import attachment
from dropflow.rest.kit import Answer
from translator.web.service import TranslatorService

__all__ = ["dfg_file", "pg_json", "source_file"]


def dfg_file(service: TranslatorService, identity: str) -> Answer:
    """The physical graph as a ``.dfg`` container. Raises as `TranslatorService.graph`."""
    path = service.graph(identity)
    name = service.get(identity).name
    return Answer(
        body=path.open("rb"),
        content_type="application/octet-stream",
        headers=(attachment(f"{name}.dfg"), ("Content-Length", str(path.stat().st_size))),
    )


def pg_json(service: TranslatorService, identity: str) -> Answer:
    """The physical graph in DALiuGE's JSON, streamed. Raises as `TranslatorService.export`."""
    name = service.get(identity).name
    return Answer(body=service.export(identity), headers=(attachment(f"{name}.pg.json"),))


def source_file(service: TranslatorService, identity: str) -> Answer:
    """What was translated, byte for byte. Raises as `TranslatorService.source`."""
    path = service.source(identity)
    name = service.get(identity).name
    # Never a type that a browser would show: the content is anybody's.
    return Answer(body=path.open("rb"), content_type="application/octet-stream", headers=(attachment(f"{name}.graph"),))
