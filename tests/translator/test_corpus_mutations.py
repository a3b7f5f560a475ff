"""Graphs of the community with faults: findings, and never an exception or a hang."""

import json
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from dropflow.errors import BadGraphError
from dropflow.failure import Severity
from dropflow.graph.order import levels
from dropflow.graph.physical import PhysicalGraph
from tests.corpus import corpus_files, needs_corpus
from translator.differences import differences
from translator.fill_document import fill_document
from translator.formats import Family, read_logical
from translator.formats.dump import dump
from translator.options import UnrollOptions
from translator.pipeline import examine
from translator.preview import preview
from translator.problem_codes import CODES
from translator.unroll import unroll
from translator.validate import fixed

_LARGEST = 40_000
_JUNK = [None, True, 0, -1, 3, 10**30, 0.5, "", "x", "{n}", "{n} * 2", "$n", [], {}, [1], {"id": "x"}, "Scatter", "MKN"]
_JUNK += ["Service", "ExclusiveForceNode", "Mpi", "Gather", "V4", "1e400", "\x00"]
_OPTIONS = UnrollOptions(max_drops=20_000, max_edges=100_000)

pytestmark = pytest.mark.slow


@cache
def text_of(path: Path) -> str:
    """Return a graph file; empty if it is too large, or a physical graph."""
    text = path.read_text(encoding="utf-8-sig")
    return text if len(text) < _LARGEST and text.lstrip().startswith("{") else ""


@cache
def files() -> list[Path]:
    """Return the logical graphs of ordinary size."""
    return [path for path in corpus_files() if text_of(path)]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container of a document with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def mutated(draw: Any, document: Any) -> None:
    """Remove, replace, repeat or exchange values of a document."""
    for _ in range(draw(st.integers(1, 4))):
        found = places(document)
        if not found:
            return
        holder, key = found[draw(st.integers(0, len(found) - 1))]
        how = draw(st.sampled_from(["remove", "replace", "repeat", "exchange"]))
        if how == "remove":
            del holder[key]
        elif how == "replace":
            holder[key] = draw(st.sampled_from(_JUNK))
        elif how == "repeat" and isinstance(holder, list):
            holder.append(holder[key])
        else:
            other, place = found[draw(st.integers(0, len(found) - 1))]
            if json.dumps(holder[key]) != json.dumps(other[place]) and not isinstance(other[place], dict | list):
                holder[key] = other[place]


def is_ordered(graph: PhysicalGraph) -> bool:
    """Return whether no drops wait for each other, which plans do not show, and the preview refuses."""
    try:
        levels(graph)
    except BadGraphError:
        return False
    return True


@needs_corpus
@given(st.data())
@settings(
    max_examples=200,
    deadline=None,
    phases=(Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow],
)
def test_a_damaged_graph_gives_findings(data: st.DataObject) -> None:
    """All stages and tools take it: checks, plan, preview, unrolling, filling, corrections, comparison and writing."""
    path = data.draw(st.sampled_from(files()), label="file")
    document = json.loads(text_of(path))
    mutated(data.draw, document)
    content = json.dumps(document).encode()
    assume(len(content) < 2 * _LARGEST)
    found = examine(content, name="g", unroll_options=_OPTIONS)

    assert all(one.code in CODES for one in found.problems)
    filled = fill_document(content, name="g", settings={"n": 2})
    assert filled.document or any(one.severity is Severity.ERROR for one in filled.problems)
    graph = read_logical(content, name="g").graph
    if graph is not None:
        assert differences(graph, graph) == ()
        fixed(json.loads(content), graph, found.problems)
        for family in (Family.OJS_ID, Family.V4):
            json.dumps(dump(graph, family))
    if found.plan is not None and not any(one.severity is Severity.ERROR for one in found.problems):
        made = unroll(found.plan)
        assert (made.drops, made.edges) == (found.plan.drops, found.plan.edges)
        assert found.logical is not None
        with nullcontext() if is_ordered(made) else suppress(BadGraphError):
            assert preview(found.logical, found.plan, _OPTIONS).drops == made.drops
