"""A session as a Workflow Run RO-Crate: ``ro-crate-metadata.json`` beside its results, for archives and other tools.

The profile is Workflow Run Crate 0.5 (S. Leo et al., "Recording provenance of workflow runs with RO-Crate", PLOS ONE 19
(2024), e0309210): one action for the run, whose instrument is the graph; the inputs from outside and the parameters are
its objects, the results that are here its results. A file beside it can hold a signature with the cluster key: the
digests of all files of the crate, under an HMAC (RFC 2104).
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from mimetypes import guess_type
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import numpy as np

from dropflow.api.signing import default_key_file
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.cli.run_or_session import is_run_directory, report_of
from dropflow.cli.understand.prov import MOST_DROPS, PROV, write_prov
from dropflow.clock import SystemClock
from dropflow.data.registry import is_read_from_outside
from dropflow.data.storage_errors import storage_errors
from dropflow.errors import BadFileError, UsageError, optional_package
from dropflow.files import GRAPH_FILE, replace_file
from dropflow.formatting import few, plural
from dropflow.graph.codec import digest, save
from dropflow.graph.drop_counts import failed_words
from dropflow.graph.notes import repository_of, software_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid
from dropflow.reuse.log import origin_in
from dropflow.states import SessionState
from dropflow.submission.options import ConnectionOptions
from dropflow.web.report import SessionReport
from managers.keys import load

METADATA = "ro-crate-metadata.json"
SIGNATURE = f"{METADATA}.sig"
_PURPOSE = b"dropflow crate signature 1"
_PROFILES = (
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)
_WORKFLOW = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
_HOME = "https://github.com/dropflow/dropflow"
_MOST_PARAMETERS = 2000
"""Values of parameters in the crate."""
_TEXT_CHARACTERS = 2000
"""Characters of a value, or of the error of a session, in the crate."""
_SHOWN_ABSENT = 25
"""Names of absent results in a message."""


class CrateReply(msgspec.Struct, frozen=True, kw_only=True):
    """The archive that was written, its results, and those that are missing.

    Attributes
    ----------
    signed : int
        How many files its signature covers; 0 without one.
    """

    ok: bool
    file: str
    results: int
    missing: tuple[str, ...]
    signed: int = 0

    def lines(self) -> Iterator[str]:
        """Yield the file, the results that are not described, and the signature."""
        yield f"{self.file} describes {plural(self.results, 'result')}"
        if self.missing:
            yield f"{plural(len(self.missing), 'result')} not in that directory: {few(self.missing, _SHOWN_ABSENT)}"
        if self.signed:
            yield f"signed: {plural(self.signed, 'file')}"


def write_crate(
    output: CommandOutput, manager: ConnectionOptions, run: str, directory: Path, license_: str, *, is_signed: bool
) -> Exit:
    """Write a run into a Workflow Run RO-Crate, and answer with what is in it."""
    if not directory.is_dir():
        raise UsageError("there is no such directory", where=str(directory), hint="'dropflow fetch' writes results")
    key = None
    if is_signed:
        key = load(Path(manager.key) if manager.key else default_key_file())
    report = report_of(manager, run, has_states=True)
    if report.graph.drops > MOST_DROPS:
        output.note(f"the provenance of single drops is left out: there are more than {MOST_DROPS:,}")
    results, missing = _describe(
        report,
        directory.absolute(),
        license_=license_ or "not stated",
        reused=_origins(manager, run, report),
    )
    signed = 0 if key is None else sign_crate(directory, key.secret, key.fingerprint)
    file = str(directory / METADATA)
    output.answer(CrateReply(ok=not missing, file=file, results=results, missing=tuple(missing), signed=signed))
    return Exit.FAILED if missing else Exit.FINISHED


def _origins(manager: ConnectionOptions, run: str, report: SessionReport) -> dict[int, str]:
    """Return from which session and host results were taken, by their drops."""
    graph, results = report.graph, report.results.results
    reused = {result.drop: result.reused for result in results if result.reused}
    if not report.detail.reused or is_run_directory(run):
        return reused
    # The node of a result knows only what its own applications have taken.
    away = [
        (result.drop, app)
        for result in results
        for app in graph.predecessors.of(result.drop)
        if result.drop not in reused and graph.part[app] != graph.part[result.drop]
    ]
    if away:
        with manager.connect() as client:
            for drop, app in away:
                if origin := origin_in(client.drop(run, oid(graph, app)).reasons):
                    reused[drop] = origin
    return reused


def _describe(
    report: SessionReport, directory: Path, *, license_: str, reused: Mapping[int, str]
) -> tuple[int, list[str]]:
    """Describe a session in a directory that has its results; return how many it has, and the paths of the others.

    Parameters
    ----------
    report : SessionReport
        The session, with its results and states.
    directory : Path
        Directory of the run, or of ``dropflow fetch``. It gets the graph, too, if it is not there.
    license_ : str
        Address of the license of the results, or its text.
    reused : mapping of int to str
        Where results were taken from that the session has not computed, by their drops.

    Raises
    ------
    MissingDependencyError
        The package rocrate or prov is not installed.
    StorageError
        The directory cannot be written, or a result cannot be read.
    """
    library = optional_package("rocrate.rocrate", "RO-Crates need", "provenance")
    entities = optional_package("rocrate.model", "RO-Crates need", "provenance")
    graph, detail = report.graph, report.detail
    with storage_errors("write", str(directory / GRAPH_FILE)):
        if not (directory / GRAPH_FILE).exists():
            save(graph, directory / GRAPH_FILE)
    words = f"{detail.drops:,} drops, {failed_words(detail.counts)}"
    crate = library.ROCrate(version="1.1")
    crate.name = f"{detail.graph or graph.name}: session {detail.session}"
    crate.description = f"A run of the dataflow graph {graph.name} by dropflow: {words}."
    crate.license = license_
    crate.root_dataset["conformsTo"] = [
        crate.add(
            entities.contextentity.ContextEntity(
                crate,
                profile,
                properties={"@type": "CreativeWork", "name": profile.split("/", 3)[3], "version": profile[-3:]},
            )
        )
        for profile in _PROFILES
    ]
    workflow = _add_workflow(crate, entities, graph, directory)
    objects = [
        crate.add(entities.contextentity.ContextEntity(crate, key, properties=properties))
        for key, properties in _objects(graph)
    ]
    results, missing = _add_results(crate, report, directory, reused)
    crate.root_dataset["mentions"] = crate.add_action(
        workflow, identifier="#run", object=objects, result=results, properties=_run_properties(report, words)
    )
    if graph.drops <= MOST_DROPS:
        write_prov(report, directory / PROV, reused)
        about = {
            "name": "Provenance of all drops",
            "encodingFormat": "application/json",
            "conformsTo": {"@id": "https://www.w3.org/submissions/prov-json/"},
            "about": {"@id": "#run"},
        }
        crate.add_file(directory / PROV, PROV, properties=about)
    with storage_errors("write", str(directory / METADATA)):
        crate.metadata.write(directory)
    return len(results), missing


def _add_workflow(crate: Any, entities: Any, graph: PhysicalGraph, directory: Path) -> Any:
    """Add the graph to a crate as its workflow, with its applications, and return it."""
    version = software_of(graph).get("dropflow", "not recorded")
    language = crate.add(
        entities.computerlanguage.ComputerLanguage(
            crate,
            "#dropflow",
            properties={"name": "dropflow", "url": {"@id": _HOME}, "version": version},
        )
    )
    workflow = crate.add_workflow(dest_path=GRAPH_FILE, main=True, lang=language, source=directory / GRAPH_FILE)
    workflow["name"] = graph.name
    workflow["version"] = digest(graph)
    workflow["encodingFormat"] = "application/octet-stream"
    workflow["conformsTo"] = {"@id": _WORKFLOW}
    workflow["hasPart"] = [
        crate.add(
            entities.softwareapplication.SoftwareApplication(
                crate,
                f"#{template.key}",
                properties={"name": template.name, "description": template.component, "version": version},
            )
        )
        for template in graph.templates
        if template.kind is Kind.APP
    ]
    repository = repository_of(graph)
    if repository is not None:
        workflow["isBasedOn"] = str(repository.address)
    return workflow


def _objects(graph: PhysicalGraph) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the id and the properties of each input from outside, and of the first parameters."""
    for name, address in _inputs(graph):
        yield address, {"@type": "CreativeWork", "name": name, "url": address}
    for key, name, value in islice(_parameters(graph), _MOST_PARAMETERS):
        yield key, {"@type": "PropertyValue", "name": name, "value": value}


def _run_properties(report: SessionReport, words: str) -> dict[str, str]:
    """Return the properties of the action for the run: when it ran, and how it ended."""
    detail = report.detail
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
        properties["error"] = "; ".join(cause.text for cause in report.causes)[:_TEXT_CHARACTERS]
    return properties


def _add_results(
    crate: Any, report: SessionReport, directory: Path, reused: Mapping[int, str]
) -> tuple[list[Any], list[str]]:
    """Add the results that are in a directory to a crate, and return them, and the paths of the others."""
    results, missing = [], []
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
            results.append(crate.add_directory(dest_path=f"{result.path}/", source=path, properties=properties))
        else:
            properties["sha256"] = _sha256(path)
            properties["encodingFormat"] = guess_type(path.name)[0] or "application/octet-stream"
            results.append(crate.add_file(path, result.path, properties=properties))
    return results, missing


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
        for argument in template.arguments if template.kind is Kind.APP else ():
            is_own = (
                argument.parameter_type == "ApplicationArgument"
                and not argument.is_port
                and argument.name != "func_code"
            )
            if is_own and argument.value not in (None, ""):
                yield (
                    f"#{template.key}-{argument.name}",
                    f"{template.name}.{argument.name}",
                    str(argument.value)[:_TEXT_CHARACTERS],
                )


def _sha256(path: Path) -> str:
    with storage_errors("read", str(path)), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


# Signatures.


class CrateSignature(msgspec.Struct, frozen=True, kw_only=True):
    """The signature of a crate.

    Attributes
    ----------
    key : str
        Fingerprint of the cluster key.
    signed : str
        When, in UTC.
    files : dict
        SHA-256 of each file, also of those in directories, by its path in the crate.
    mac : str
        HMAC-SHA256 of the rest, as hexadecimal digits.
    """

    key: str
    signed: str
    files: dict[str, str]
    mac: str = ""

    def made_with(self, secret: bytes) -> str:
        """Return the MAC that these fields have with the secret half of a cluster key."""
        key = hmac.new(secret, _PURPOSE, hashlib.sha256).digest()
        covered = msgspec.json.encode((self.key, self.signed, sorted(self.files.items())))
        return hmac.new(key, covered, hashlib.sha256).hexdigest()


def sign_crate(directory: Path, secret: bytes, fingerprint: str) -> int:
    """Write the signature of a crate beside its metadata, and return how many files it covers.

    Raises
    ------
    StorageError
        A file cannot be read, or the signature cannot be written.
    """
    files = {path: _sha256(directory / path) for path in _files_of(directory)}
    bare = CrateSignature(key=fingerprint, signed=_time(SystemClock().now()), files=files)
    signed = msgspec.structs.replace(bare, mac=bare.made_with(secret))
    text = msgspec.json.format(msgspec.json.encode(signed)) + b"\n"
    with storage_errors("write", str(directory / SIGNATURE)):
        replace_file(directory / SIGNATURE, text)
    return len(files)


def check_crate(directory: Path, secret: bytes, fingerprint: str) -> tuple[CrateSignature, list[str]]:
    """Return the signature of a crate, and what is not as it was when it was signed.

    Raises
    ------
    BadFileError
        There is no signature, it cannot be read, or it was not made with this key.
    StorageError
        A file cannot be read.
    """
    path = directory / SIGNATURE
    if not path.exists():
        hint = "'dropflow explain RUN --crate DIR --sign' writes one"
        raise BadFileError("the crate is not signed", where=str(path), hint=hint)
    try:
        with storage_errors("read", str(path)):
            signature = msgspec.json.decode(path.read_bytes(), type=CrateSignature)
    except msgspec.DecodeError as error:
        raise BadFileError(f"this is not a signature of a crate: {error}", where=str(path)) from error
    if not hmac.compare_digest(signature.made_with(secret), signature.mac):
        if signature.key != fingerprint:
            hint = f"this is cluster key {fingerprint}: name the other key with --key"
            raise BadFileError(f"the crate is signed with cluster key {signature.key}", where=str(path), hint=hint)
        hint = "it or the list of files was changed after the crate was signed"
        raise BadFileError("the signature does not match", where=str(path), hint=hint)
    changed = []
    for name, known in signature.files.items():
        if not (directory / name).is_file():
            changed.append(f"{name} is not there")
        elif _sha256(directory / name) != known:
            changed.append(f"{name} was changed")
    # Who changed the metadata chose what they name.
    added = [] if changed else sorted(set(_files_of(directory)) - signature.files.keys())
    return signature, [*changed, *(f"{name} was added" for name in added)]


def _files_of(directory: Path) -> Iterator[str]:
    """Yield the paths of all files of a crate: its metadata, and what these describe."""
    yield METADATA
    with storage_errors("read", str(directory / METADATA)):
        described = msgspec.json.decode((directory / METADATA).read_bytes())
    for name in (unquote(entity["@id"]) for entity in described["@graph"]):
        path = directory / name
        if path.is_file():
            yield name
        elif name != "./" and path.is_dir():
            yield from sorted(str(file.relative_to(directory)) for file in path.rglob("*") if file.is_file())
