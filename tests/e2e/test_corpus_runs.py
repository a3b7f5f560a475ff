"""Graphs of the community run to their end, or fail with the drop, the reason and a hint.

Applications that sleep get a time of zero, so that the tests take one minute instead of ten.
"""

from pathlib import Path

import msgspec
import pytest

from dropflow.engine.statistics import SessionResult
from dropflow.errors import BadGraphError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Template
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.corpus import corpus_files, daliuge_runs, needs_corpus
from translator.pipeline import translate

pytestmark = pytest.mark.slow

RUNS = [path for path in corpus_files() if path.name in daliuge_runs()]
_CLEAN = [path for path in RUNS if daliuge_runs()[path.name]["runs_clean"] == "yes"]
_SLEEPY = (
    "EAGLE-graph-repo__examples__parallel_sleep",
    "EAGLE_test_repo__eagle_test_graphs__daliuge_tests__translator__logical_graphs__testLoop",
)
"""How long their applications sleep is data, or in a command: 100 s and 18 s in all."""
_OTHERS = [
    pytest.param(path, marks=pytest.mark.exhaustive if path.stem in _SLEEPY else ())
    for path in RUNS
    if path not in _CLEAN
]


def _awake(template: Template) -> Template:
    """Return the template with a sleeping time of zero, if it has one, or makes random ones."""
    if "Sleep" in template.component or "Sleep" in template.category:
        new = {"sleep_time": 0.0}
    elif "RandomArray" in template.component:
        new = {"low": 0, "high": 1}
    else:
        return template
    kept = tuple(each for each in template.arguments if each.name not in (*new, "execution_time"))
    changed = tuple(Argument(name=name, value=value) for name, value in new.items())
    return msgspec.structs.replace(template, arguments=(*kept, *changed))


def awake(path: Path) -> PhysicalGraph:
    """Return the graph of a file, whose applications do not sleep."""
    graph = translate(path).graph
    return PhysicalGraph(
        name=graph.name,
        prefix=graph.prefix,
        templates=tuple(_awake(template) for template in graph.templates),
        links=graph.links,
        template=graph.template,
        instance=graph.instance,
        part=graph.part,
        successors=graph.successors,
        oids=graph.oids,
    )


def run(path: Path, directory: Path) -> SessionResult:
    """Translate and run a file in worker processes."""
    return local_run.run(awake(path), directory=local_run.prepare_directory(directory / "run"), workers=2)


@needs_corpus
@pytest.mark.parametrize("path", _CLEAN, ids=lambda path: path.stem)
def test_graphs_without_errors_in_daliuge_have_none(path: Path, tmp_path: Path) -> None:
    """Every graph that is FINISHED without an ERROR drop in DALiuGE is so in dropflow.

    The exception are graphs with several drops that write one file. DALiuGE keeps the last; in dropflow those fail that
    would replace the output of others.
    """
    loses = any(found.code == "LG085" for found in translate(path).problems)
    result = run(path, tmp_path)

    if loses:
        assert all("has been written by" in failure.text for failure in result.failures)
        return
    assert result.status is SessionState.FINISHED, result.failures
    assert result.states["ERROR"] == 0


@needs_corpus
@pytest.mark.parametrize("path", _OTHERS, ids=lambda path: path.stem)
def test_the_others_end_with_a_reason(path: Path, tmp_path: Path) -> None:
    """Every other graph finishes, or is refused with all reasons, or fails with drops, reasons and hints."""
    result, refusal = None, None
    try:
        result = run(path, tmp_path)
    except BadGraphError as error:
        refusal = error
    if result is None:
        assert refusal is not None
        assert all(found.text for found in refusal.problems)
        assert refusal.problems
        assert refusal.hint
        return

    assert result.status in (SessionState.FINISHED, SessionState.FAILED)
    assert (result.status is SessionState.FAILED) <= bool(result.failures)
    for failure in result.failures:
        assert failure.drop
        assert failure.text
        assert failure.hint or failure.detail, failure
