"""The signature of a session: what it computed, by four levels, and at which of them two sessions are the same.

* ``graph``: the same components with the same links and indices.
* ``parameters``: also the same parameters.
* ``software``: the same versions of dropflow and Python.
* ``contents``: the same results, by the sizes and checksums with which they were committed.
"""

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec

from dropflow.api.records import ResultInfo
from dropflow.api.requests import ResultList
from dropflow.formatting import format_size
from dropflow.graph.differences import Difference, matched_templates
from dropflow.graph.digests import drop_digests, signature_of
from dropflow.graph.notes import RepositoryNote, repository_of, software_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import iid, label

Level = Literal["same", "different", "unknown"]
_FEW = 20


class SessionSignature(msgspec.Struct, frozen=True, kw_only=True):
    """What a session computed.

    Attributes
    ----------
    graph, parameters : str
        Digests of the components, links and indices of all drops, and of these with their parameters.
    contents : str
        Digest of names, indices, sizes and checksums of all results; empty if one of these is not known.
    software : dict
        Versions of programs; empty if they were not recorded.
    repository : RepositoryNote or None
        Where the graph was read from, if that is a repository.
    results : int
        How many results there are.
    unknown : int
        How many of them have no checksum: directories, and results of nodes that do not keep them.
    first_unknown : tuple of str
        Names of the first of these.
    missing : tuple of str
        Nodes that did not answer: their results are not known.
    """

    graph: str
    parameters: str
    contents: str
    software: dict[str, str]
    results: int
    unknown: int
    first_unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    repository: RepositoryNote | None = None

    @property
    def contents_note(self) -> str:
        """Why the contents have no digest; empty if they have one."""
        if self.missing:
            return f"nodes that did not answer: {', '.join(self.missing[:_FEW])}"
        if self.unknown:
            more = ", ..." if self.unknown > len(self.first_unknown) else ""
            names = f"{', '.join(self.first_unknown)}{more}"
            return f"{self.unknown:,} of {self.results:,} results have no checksum: {names}"
        return "" if self.results else "there are no results"

    def words(self, level: str) -> str:
        """Return what is known at a level: a digest, versions, or why there is none."""
        if level == "software":
            return ", ".join(f"{program} {version}" for program, version in self.software.items()) or "not recorded"
        found = {"graph": self.graph, "parameters": self.parameters, "contents": self.contents}[level]
        return found or f"not known: {self.contents_note}"


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """At which levels two sessions are the same."""

    graph: Level
    parameters: Level
    software: Level
    contents: Level


def signature(graph: PhysicalGraph, results: ResultList) -> SessionSignature:
    """Return the signature of a session with these results.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    digests = drop_digests(graph)
    unknown = [one for one in results.results if one.checksum is None]
    contents = ""
    if results.results and not unknown and not results.missing:
        rows = sorted((one.name, iid(graph, one.drop), one.size, one.checksum or 0) for one in results.results)
        contents = hashlib.blake2b(msgspec.json.encode(rows), digest_size=16).hexdigest()
    return SessionSignature(
        graph=signature_of(graph, digests.graph),
        parameters=signature_of(graph, digests.parameters),
        contents=contents,
        software=software_of(graph),
        results=len(results.results),
        unknown=len(unknown),
        first_unknown=tuple(label(graph, one.drop) for one in unknown[:_FEW]),
        missing=results.missing,
        repository=repository_of(graph),
    )


def levels_of(first: SessionSignature, second: SessionSignature, differences: int) -> Levels:
    """Compare two sessions level by level. `differences` is the number of results that differ."""
    contents: Level = "different" if differences else "same" if first.contents and second.contents else "unknown"
    software: Level = "unknown"
    if first.software and second.software:
        software = _level(first.software == second.software)
    return Levels(
        graph=_level(first.graph == second.graph),
        parameters=_level(first.parameters == second.parameters),
        software=software,
        contents=contents,
    )


def content_differences(
    first: tuple[PhysicalGraph, ResultList], second: tuple[PhysicalGraph, ResultList]
) -> Iterator[Difference]:
    """Yield the results that differ for sure: in size or checksum, or because only one session has them.

    Results match by their logical nodes and indices. What only one session has is left out if a node of the other one
    did not answer.
    """
    (graph, ours), (other_graph, theirs) = first, second
    pairs = matched_templates(graph.templates, other_graph.templates)
    known = {_place(other_graph, one): one for one in theirs.results}
    for one in ours.results:
        row, instance = _place(graph, one)
        other = known.pop((pairs[row], instance), None) if row in pairs else None
        if other is None:
            if not theirs.missing:
                yield Difference(subject=label(graph, one.drop), what="result", left=_spelled(one))
        elif one.size != other.size or (one.checksum != other.checksum and None not in (one.checksum, other.checksum)):
            yield Difference(subject=label(graph, one.drop), what="result", left=_spelled(one), right=_spelled(other))
    if not ours.missing:
        for one in known.values():
            yield Difference(subject=label(other_graph, one.drop), what="result", right=_spelled(one))


def _level(is_same: bool) -> Level:  # noqa: FBT001 - the only argument
    return "same" if is_same else "different"


def _place(graph: PhysicalGraph, result: ResultInfo) -> tuple[int, str]:
    """Return the row of the template of a result, and its index."""
    return int(graph.template[result.drop]), iid(graph, result.drop)


def _spelled(result: ResultInfo) -> str:
    known = "no checksum" if result.checksum is None else f"CRC-32 {result.checksum:08x}"
    return f"{format_size(result.size)}, {known}"
