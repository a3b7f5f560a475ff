"""The signature of a session: what it computed, by four levels, and at which of them two sessions are the same.

``graph``: the same components with the same links and indices. ``parameters``: also the same parameters.
``software``: the same versions of dropflow and Python. ``contents``: the same results, by the sizes and checksums
with which they were committed. DALiuGE's seven modes of reproducibility are made of them.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from dropflow.api.drop_records import ResultInfo
from dropflow.api.requests import ResultList
from dropflow.graph.digests import DropDigests, digest_text, drop_digests, signature_of
from dropflow.graph.notes import RepositoryNote, repository_of, software_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import iid, label

Level = Literal["same", "different", "unknown"]
MODES: Mapping[str, tuple[str, ...]] = {
    "RERUN": ("graph",),
    "REPEAT": ("parameters",),
    "RECOMPUTE": ("parameters", "software"),
    "REPRODUCE": ("contents",),
    "REPLICATE_SCI": ("graph", "contents"),
    "REPLICATE_COMP": ("parameters", "software", "contents"),
    "REPLICATE_TOTAL": ("parameters", "contents"),
}
"""DALiuGE's modes of reproducibility, and the levels that must be the same for each. ``parameters`` contains
``graph``."""
_LISTED_NAMES = 20
"""Nodes without an answer, or drops without a digest, that are named."""


class SessionSignature(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of a session: of its graph, its parameters, its results and its software.

    Attributes
    ----------
    graph, parameters : str
        Digests of the components, links and indices of all drops, and of these with their parameters.
    contents : str
        Digest of names, indices, sizes and checksums of all results; empty if one of these is not known.
    software : dict
        Versions of programs; empty if they were not recorded.
    modes : dict
        A digest for each of `MODES`; empty if a level of it is not known.
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
    modes: dict[str, str]
    results: int
    unknown: int
    first_unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    repository: RepositoryNote | None = None

    @property
    def contents_note(self) -> str:
        """Why the contents have no digest; empty if they have one."""
        if self.missing:
            return f"nodes that did not answer: {', '.join(self.missing[:_LISTED_NAMES])}"
        if self.unknown:
            more = ", ..." if self.unknown > len(self.first_unknown) else ""
            names = f"{', '.join(self.first_unknown)}{more}"
            return f"{self.unknown:,} of {self.results:,} results have no checksum: {names}"
        return "" if self.results else "there are no results"

    def words(self, level: str) -> str:
        """Return what is known at a level: a digest, versions, or why there is none."""
        if level == "software":
            return ", ".join(f"{program} {version}" for program, version in self.software.items()) or "not recorded"
        digest = {"graph": self.graph, "parameters": self.parameters, "contents": self.contents}[level]
        return digest or f"not known: {self.contents_note}"


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """Levels at which two sessions are the same."""

    graph: Level
    parameters: Level
    software: Level
    contents: Level


def signature(graph: PhysicalGraph, results: ResultList, digests: DropDigests | None = None) -> SessionSignature:
    """Return the signature of a session with these results; the digests of its drops are computed if not given.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    digests = digests or drop_digests(graph)
    unknown = [result for result in results.results if result.checksum is None]
    contents = ""
    if results.results and not unknown and not results.missing:
        contents = _digest(sorted(_content(graph, result) for result in results.results))
    software = software_of(graph)
    levels = {
        "graph": signature_of(graph, digests.graph),
        "parameters": signature_of(graph, digests.parameters),
        "contents": contents,
    }
    return SessionSignature(
        **levels,
        software=software,
        modes=_modes({**levels, "software": _digest(software) if software else ""}),
        results=len(results.results),
        unknown=len(unknown),
        first_unknown=tuple(label(graph, drop.drop) for drop in unknown[:_LISTED_NAMES]),
        missing=results.missing,
        repository=repository_of(graph),
    )


def drop_modes(graph: PhysicalGraph, results: ResultList, digests: DropDigests) -> Iterator[dict[str, str]]:
    """Yield the digests of each drop in `MODES`: what it was made from, and of a result what it is."""
    software = software_of(graph)
    known = {result.drop: result for result in results.results if result.checksum is not None}
    programs = _digest(software) if software else ""
    for row in range(graph.drops):
        yield _modes(
            {
                "graph": digest_text(digests.graph[row]),
                "parameters": digest_text(digests.parameters[row]),
                "software": programs,
                "contents": _digest(_content(graph, known[row])) if row in known else "",
            }
        )


def _modes(levels: Mapping[str, str]) -> dict[str, str]:
    parts = {mode: [levels[name] for name in names] for mode, names in MODES.items()}
    return {mode: _digest(levels_of_mode) if all(levels_of_mode) else "" for mode, levels_of_mode in parts.items()}


def _content(graph: PhysicalGraph, result: ResultInfo) -> tuple[str, str, int, int]:
    return result.name, iid(graph, result.drop), result.size, result.checksum or 0


def _digest(levels: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(levels, order="deterministic"), digest_size=16).hexdigest()


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


def modes_of(levels: Levels) -> dict[str, Level]:
    """Return in which of `MODES` two sessions are the same: in those whose levels all are."""
    levels_by_mode: dict[str, Level] = {}
    for mode, names in MODES.items():
        states = {getattr(levels, name) for name in names}
        levels_by_mode[mode] = "different" if "different" in states else "unknown" if "unknown" in states else "same"
    return levels_by_mode


def _level(is_same: bool) -> Level:  # noqa: FBT001 - the only argument
    return "same" if is_same else "different"
