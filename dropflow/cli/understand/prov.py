"""The provenance of every drop of a session, as W3C PROV: what used what, what made what, where and when.

Applications are activities, data are entities, and nodes with their version of dropflow are agents. The file is
PROV-JSON (T. D. Huynh et al., "The PROV-JSON Serialization", W3C Member Submission, 2013).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from dropflow.data.storage_errors import storage_errors
from dropflow.errors import optional_package
from dropflow.graph.notes import software_of
from dropflow.graph.templates import ORDER_PORT, Kind
from dropflow.graph.text_ids import label, oid
from dropflow.states import DropState
from dropflow.times.attempts import last_attempts
from dropflow.web.report import SessionReport

PROV = "provenance.json"
"""Name of the file in a crate."""
MOST_DROPS = 100_000
"""The library keeps about 4 kB for each drop, and takes 45 us."""
_HAVE_CONTENT = (DropState.COMPLETED, DropState.EXPIRED, DropState.DELETED)


def write_prov(report: SessionReport, path: Path, reused: Mapping[int, str]) -> None:
    """Write the provenance of a session, whose report has states and results, to a file.

    Raises
    ------
    MissingDependencyError
        The package prov is not installed.
    StorageError
        The file cannot be written.
    """
    library = optional_package("prov.model", "PROV needs", "provenance")
    document = library.ProvDocument()
    document.add_namespace("run", f"urn:dropflow:{quote(report.detail.session, safe='')}:")
    document.add_namespace("dropflow", "https://github.com/dropflow/dropflow#")
    _Writer(report, document, reused).add_all()
    with storage_errors("write", str(path)), path.open("w") as stream:
        document.serialize(stream, format="json")


class _Writer:
    """Adds a session to a document."""

    def __init__(self, report: SessionReport, document: Any, reused: Mapping[int, str]) -> None:
        self._graph = report.graph
        self._document = document
        self._reused = reused
        self._states = np.full(report.graph.drops, 255, np.uint8) if report.states is None else report.states
        self._results = {result.drop: result for result in report.results.results}
        self._attempts = report.analysis.attempts
        self._rows = last_attempts(self._attempts, report.graph.drops).tolist()
        software = {f"dropflow:{name}": version for name, version in software_of(report.graph).items()}
        kind = {"prov:type": document.valid_qualified_name("prov:SoftwareAgent")}
        self._agents = [
            document.agent(f"run:node-{number}", {**kind, "prov:label": node, **software})
            for number, node in enumerate(self._attempts.nodes)
        ]

    def add_all(self) -> None:
        is_app = self._graph.kinds[self._graph.template] == Kind.APP
        self._made = [
            self._add_application(drop) if is_app[drop] else self._add_data(drop) for drop in range(self._graph.drops)
        ]
        for drop in np.flatnonzero(is_app).tolist():
            if self._made[drop] is not None:
                self._add_edges(drop)

    def _add_data(self, drop: int) -> Any:
        if self._states[drop] not in _HAVE_CONTENT:
            return None
        described = self._described(drop)
        if (result := self._results.get(drop)) is not None:
            described |= {"prov:location": result.path, "dropflow:size": result.size}
            if result.checksum is not None:
                described["dropflow:crc32"] = f"{result.checksum:08x}"
            if result.missing:
                described["dropflow:missing"] = result.missing
        return self._document.entity(f"run:drop-{drop}", described)

    def _add_application(self, drop: int) -> Any:
        row = self._rows[drop]
        if row < 0 and self._states[drop] != DropState.COMPLETED:
            return None
        described = self._described(drop) | {"dropflow:state": DropState(self._states[drop]).name}
        if row < 0:
            return self._document.activity(f"run:drop-{drop}", other_attributes=described)
        attempts = self._attempts
        began, ended = attempts.began[row], attempts.ended[row]
        described["dropflow:attempt"] = int(attempts.attempt[row])
        made = self._document.activity(f"run:drop-{drop}", _time(began), _time(ended), described)
        made.wasAssociatedWith(self._agents[attempts.node[row]])
        return made

    def _described(self, drop: int) -> dict[str, Any]:
        template = self._graph.templates[self._graph.template[drop]]
        attributes = {"prov:label": label(self._graph, drop), "dropflow:id": oid(self._graph, drop)}
        attributes["dropflow:component"] = template.component or template.category
        if drop in self._reused:
            attributes["dropflow:reused"] = self._reused[drop]
        return attributes

    def _add_edges(self, app: int) -> None:
        graph, document = self._graph, self._document
        for edges, is_input in ((graph.predecessors, True), (graph.successors, False)):
            first, last = edges.ptr[app], edges.ptr[app + 1]
            for other, link in zip(edges.neighbour[first:last].tolist(), edges.link[first:last].tolist(), strict=True):
                edge, data = graph.links[link], self._made[other]
                if data is None or ORDER_PORT in (edge.source_port, edge.target_port):
                    continue
                if is_input:
                    document.used(self._made[app], data, other_attributes={"prov:role": edge.target_port})
                else:
                    document.wasGeneratedBy(data, self._made[app], other_attributes={"prov:role": edge.source_port})


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(float(seconds), UTC)
