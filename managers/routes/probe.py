"""What this manager reaches of others: asked by `dropflow doctor` of every manager about every other.

A POST, though nothing changes here: it makes the manager open connections, so that it must not be something that a link
or a prefetching browser does, and the addresses are a list that is checked as a whole.
"""

from dropflow.rest.kit import Request, Route
from dropflow.rest.list_records import ProbeResultList
from dropflow.rest.schema import ProbeRequest
from managers.probing import Prober

__all__ = ["probe_routes"]


def probe_routes(prober: Prober) -> list[Route]:
    """The route by which a manager is asked what it reaches."""

    def probe(call: Request) -> ProbeResultList:
        return ProbeResultList(reaches=prober.probe(call.body))

    return [
        Route(
            method="POST",
            path="/api/v1/probe",
            handler=probe,
            summary="What it reaches of other managers, from where it stands",
            body=ProbeRequest,
            answer=ProbeResultList,
            tag="managers",
        )
    ]
