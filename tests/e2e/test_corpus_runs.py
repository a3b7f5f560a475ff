"""Graphs of the community run to their end, or fail with the drop, the reason and a hint.

Applications that sleep get a time of zero, so that the tests take seconds instead of ten minutes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dropflow.apps.registry import streaming_links
from dropflow.errors import BadGraphError
from dropflow.execution.session import Session
from dropflow.execution.statistics import SessionResult
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Template
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import SessionState
from dropflow.testing.conformance import RunOutcome, outcome_of
from tests.corpus import corpus_files, daliuge_runs, needs_corpus
from tests.nightly import nightly
from translator.pipeline import translate

pytestmark = [
    pytest.mark.slow,
    # Of the engines.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


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


def run(path: Path, directory: Path, runner: str) -> SessionResult:
    """Translate and run a file. In worker processes it takes fourteen times the processor time, to start them."""
    options = RunOptions(runner=runner, workers=2)
    return local_run.run(awake(path), local_run.prepare_directory(directory / "run"), options)


_each_runner = pytest.mark.parametrize("runner", ["threads", *nightly("processes")])


@needs_corpus
@_each_runner
@pytest.mark.parametrize("path", _CLEAN, ids=lambda path: path.stem)
def test_graphs_without_errors_in_daliuge_have_none(path: Path, runner: str, tmp_path: Path) -> None:
    """Every graph that is FINISHED without an ERROR drop in DALiuGE is so in dropflow.

    The exception are graphs with several drops that write one file. DALiuGE keeps the last; in dropflow those fail that
    would replace the output of others.
    """
    loses = any(found.code == "LG085" for found in translate(path).problems)
    result = run(path, tmp_path, runner)

    if loses:
        assert all("has been written by" in failure.text for failure in result.failures)
        return
    assert result.status is SessionState.FINISHED, result.failures
    assert result.states["ERROR"] == 0


@needs_corpus
@_each_runner
@pytest.mark.parametrize("path", _OTHERS, ids=lambda path: path.stem)
def test_the_others_end_with_a_reason(path: Path, runner: str, tmp_path: Path) -> None:
    """Every other graph finishes, or is refused with all reasons, or fails with drops, reasons and hints."""
    result, refusal = None, None
    try:
        result = run(path, tmp_path, runner)
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


# Graphs of the community give the same in the workers of Dask and Ray as in worker processes of ours.
#
# Compared are the states, the root causes of failures, and the contents. Graphs with random numbers give something else
# each time; of these, only contents that are always the same are compared. A graph that is refused is refused in the
# same words.


_TURNS = 5
"""How many runs show that a graph gives something else each time."""
_FEW = 2
"""How many graphs the continuous integration runs on Dask."""


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    """The address of a Dask cluster of two worker processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # not port 8787, which other tests may have
        silence_logs=60,
    ) as made:
        yield f"dask={made.scheduler_address}"


@pytest.fixture(scope="module")
def ray() -> Iterator[str]:
    """A Ray cluster of two processors, to which this process is connected."""
    module = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    module.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield "ray"
    module.shutdown()


def outcome(path: Path, directory: Path, runner: str) -> RunOutcome | str:
    """Return what a graph gives with a runner, or why it is refused."""
    sessions: list[Session] = []
    try:
        local_run.run(
            awake(path),
            local_run.prepare_directory(directory),
            RunOptions(runner=runner, workers=2),
            hooks=RunHooks(on_session=sessions.append),
        )
    except BadGraphError as error:
        return "\n".join((str(error), *(found.text for found in error.problems)))
    found = outcome_of(sessions[0])
    # A drop with two failed inputs counts for the one that came first. How many drops failed is compared by the states.
    failures = tuple(
        (drop, code, text.replace(str(directory), "DIRECTORY"), 0) for drop, code, text, _ in found.failures
    )
    return msgspec.structs.replace(found.without_faults(), failures=failures)


def has_streams(path: Path) -> bool:
    """Whether an application of the graph reads what is still being written, which engines refuse."""
    try:
        return bool(streaming_links(awake(path)))
    except BadGraphError:
        return False


def assert_same(path: Path, directory: Path, runner: str, note: Callable[[str, object], None]) -> None:
    """Compare a run on an engine with runs in worker processes; `note` what kind of graph it was."""
    found = outcome(path, directory / "engine", runner)
    if has_streams(path):
        assert isinstance(found, str)
        assert "has no streams" in found
        note("kind", "streams")
        return
    known: list[RunOutcome | str] = []
    for turn in range(_TURNS):
        known.append(outcome(path, directory / f"processes-{turn}", "processes"))
        if found == known[-1]:
            note("kind", "same")
            return
    # It gives something else each time, also without an engine.
    assert any(one != known[0] for one in known)
    assert all(isinstance(one, RunOutcome) for one in (found, *known))
    contents = [set(one.contents.items()) for one in known if isinstance(one, RunOutcome)]
    assert isinstance(found, RunOutcome)
    assert set.intersection(*contents) <= found.contents.items()
    note("kind", "random")


@needs_corpus
@pytest.mark.parametrize("path", RUNS[:: max(len(RUNS) // _FEW, 1)][:_FEW], ids=lambda path: path.stem)
def test_some_graphs_give_the_same_on_dask(
    path: Path, dask: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """States, root causes and contents are those of a run in worker processes."""
    assert_same(path, tmp_path, dask, record_property)


@needs_corpus
@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["dask", "ray"])
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_all_graphs_give_the_same_on_engines(
    path: Path,
    engine: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    """As above, for each graph that DALiuGE can begin, also in the actors of Ray."""
    assert_same(path, tmp_path, request.getfixturevalue(engine), record_property)
