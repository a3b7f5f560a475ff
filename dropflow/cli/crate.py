"""A session as a Workflow Run RO-Crate: ``ro-crate-metadata.json`` beside its results, for archives and other tools.

The profile is Workflow Run Crate 0.5 (S. Leo et al., "Recording provenance of workflow runs with RO-Crate", PLOS ONE 19
(2024), e0309210): one action for the run, whose instrument is the graph; the inputs from outside and the parameters are
its objects, the results that are here its results.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from mimetypes import guess_type
from pathlib import Path
from typing import Any

import numpy as np

from dropflow.data.registry import is_read_from_outside
from dropflow.data.storage_errors import storage_errors
from dropflow.errors import optional_package
from dropflow.graph.codec import digest, save
from dropflow.graph.drop_counts import failed_words
from dropflow.graph.notes import repository_of, software_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import SessionState
from dropflow.web.report import SessionReport

METADATA = "ro-crate-metadata.json"
_GRAPH = "graph.dfg"
_PROFILES = (
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)
_WORKFLOW = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
_HOME = "https://github.com/dropflow/dropflow"
_MOST_PARAMETERS = 2000
_TEXT = 2000


def write_crate(
    report: SessionReport, directory: Path, *, license_: str, reused: Mapping[int, str]
) -> tuple[int, list[str]]:
    """Describe a session in a directory that has its results; return how many it has, and the paths of the others.

    Parameters
    ----------
    report : SessionReport
        The session, with its results.
    directory : Path
        Of the run, or of ``dropflow fetch``. It gets the graph, too, if it is not there.
    license_ : str
        Address of the license of the results, or its text.
    reused : mapping of int to str
        Where results were taken from that the session has not computed, by their drops.

    Raises
    ------
    MissingDependencyError
        The package rocrate is not installed.
    StorageError
        The directory cannot be written, or a result cannot be read.
    """
    library = optional_package("rocrate.rocrate", "RO-Crates need", "provenance")
    entities = optional_package("rocrate.model", "RO-Crates need", "provenance")
    graph, detail = report.graph, report.detail
    with storage_errors("write", str(directory / _GRAPH)):
        if not (directory / _GRAPH).exists():
            save(graph, directory / _GRAPH)
    crate = library.ROCrate(version="1.1")
    root, words = crate.root_dataset, f"{detail.drops:,} drops, {failed_words(detail.counts)}"
    crate.name = f"{detail.graph or graph.name}: session {detail.session}"
    crate.description = f"A run of the dataflow graph {graph.name} by dropflow: {words}."
    crate.license = license_
    root["conformsTo"] = [
        crate.add(
            entities.contextentity.ContextEntity(
                crate, one, properties={"@type": "CreativeWork", "name": one.split("/", 3)[3], "version": one[-3:]}
            )
        )
        for one in _PROFILES
    ]
    version = software_of(graph).get("dropflow", "not recorded")
    language = crate.add(
        entities.computerlanguage.ComputerLanguage(
            crate,
            "#dropflow",
            properties={"name": "dropflow", "url": {"@id": _HOME}, "version": version},
        )
    )
    workflow = crate.add_workflow(dest_path=_GRAPH, main=True, lang=language, source=directory / _GRAPH)
    workflow["name"] = graph.name
    workflow["version"] = digest(graph)
    workflow["encodingFormat"] = "application/octet-stream"
    workflow["conformsTo"] = {"@id": _WORKFLOW}
    workflow["hasPart"] = [
        crate.add(
            entities.softwareapplication.SoftwareApplication(
                crate, f"#{one.key}", properties={"name": one.name, "description": one.component, "version": version}
            )
        )
        for one in graph.templates
        if one.kind is Kind.APP
    ]
    repository = repository_of(graph)
    if repository is not None:
        workflow["isBasedOn"] = str(repository.address)
    described = [(address, {"@type": "CreativeWork", "name": name, "url": address}) for name, address in _inputs(graph)]
    described += [
        (key, {"@type": "PropertyValue", "name": name, "value": value})
        for key, name, value in islice(_parameters(graph), _MOST_PARAMETERS)
    ]
    objects = [
        crate.add(entities.contextentity.ContextEntity(crate, key, properties=properties))
        for key, properties in described
    ]
    found, missing = _add_results(crate, report, directory, reused)
    is_finished = detail.status == SessionState.FINISHED.name
    status = "CompletedActionStatus" if is_finished else "FailedActionStatus"
    properties = {
        "name": f"session {detail.session}",
        # The notes have the digests of containers, and what else was unusual.
        "description": "; ".join((f"{detail.status}: {words}", *detail.notes)),
        "actionStatus": f"http://schema.org/{status}",
        "startTime": _time(detail.started),
        "endTime": _time(detail.started + detail.seconds),
    }
    if not is_finished and report.causes:
        properties["error"] = "; ".join(cause.text for cause in report.causes)[:_TEXT]
    action = crate.add_action(workflow, identifier="#run", object=objects, result=found, properties=properties)
    root["mentions"] = action
    with storage_errors("write", str(directory / METADATA)):
        crate.metadata.write(directory)
    return len(found), missing


def _add_results(
    crate: Any, report: SessionReport, directory: Path, reused: Mapping[int, str]
) -> tuple[list[Any], list[str]]:
    """Add the results that are in a directory to a crate, and return them, and the paths of the others."""
    found, missing = [], []
    for result in report.results.results:
        path = directory / result.path
        if not path.exists() or not path.is_relative_to(directory):
            missing.append(result.path)
            continue
        properties = {"name": result.name, "contentSize": str(result.size)}
        words = [f"made from {100 * (1 - result.missing):.3g} % of its data"] if result.missing else []
        words += [reused[result.drop]] if result.drop in reused else []
        if words:
            properties["description"] = "; ".join(words)
        if path.is_dir():
            found.append(crate.add_directory(dest_path=f"{result.path}/", source=path, properties=properties))
        else:
            properties["sha256"] = _sha256(path)
            properties["encodingFormat"] = guess_type(path.name)[0] or "application/octet-stream"
            found.append(crate.add_file(path, result.path, properties=properties))
    return found, missing


def _inputs(graph: PhysicalGraph) -> Iterator[tuple[str, str]]:
    """Yield name and address of what was read from outside."""
    written = {link.target for link in graph.links}
    for row, template in enumerate(graph.templates):
        path = template.argument("filepath")
        if template.kind is Kind.APP or row in written or path is None or not path.value:
            continue
        if is_read_from_outside(template):
            place = str(path.value)
            yield template.name, place if "://" in place else Path(place).absolute().as_uri()


def _parameters(graph: PhysicalGraph) -> Iterator[tuple[str, str, str]]:
    """Yield id, name and value of what was set for applications, but for their code."""
    for row in np.unique(graph.template).tolist():
        template = graph.templates[row]
        for one in template.arguments if template.kind is Kind.APP else ():
            is_own = one.parameter_type == "ApplicationArgument" and not one.is_port and one.name != "func_code"
            if is_own and one.value not in (None, ""):
                yield f"#{template.key}-{one.name}", f"{template.name}.{one.name}", str(one.value)[:_TEXT]


def _sha256(path: Path) -> str:
    with storage_errors("read", str(path)), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
