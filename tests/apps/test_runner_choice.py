"""The names of runners, and what is refused before anything runs."""

import importlib.util
from pathlib import Path

import pytest

import dropflow
from dropflow.errors import BadGraphError, BadParameterError, LinkError, MissingDependencyError
from dropflow.runners.runner_choice import RunnerChoice, parse_runner

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

_OWN = """
from dropflow.apps.execute import LocalExecutor
from dropflow.runners.in_process import InlineRunner

made = []

def make(spec, workers):
    made.append((spec.session, workers))
    return InlineRunner(LocalExecutor(spec))
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("threads", RunnerChoice("threads")),
        ("dask", RunnerChoice("dask")),
        ("dask=tcp://host:8786", RunnerChoice("dask", "tcp://host:8786")),
        ("ray=auto", RunnerChoice("ray", "auto")),
        ("ray=auto,contents=s3://bucket/x,y=1", RunnerChoice("ray", "auto", "s3://bucket/x,y=1")),
        ("dask,contents=memory://x", RunnerChoice("dask", "", "memory://x")),
        ("package.module:make", RunnerChoice("custom", "package.module:make")),
    ],
)
def test_a_runner_has_a_name_an_address_or_a_function(text: str, expected: RunnerChoice) -> None:
    """These are all forms."""
    assert parse_runner(text) == expected


@pytest.mark.parametrize("text", ["", "dusk", "dask=", "threads=4", "a:b:c", "a-b:c", ":make", "module:"])
def test_other_names_are_refused_with_all_that_there_are(text: str) -> None:
    """The error lists the runners."""
    with pytest.raises(BadParameterError, match="there is no runner") as caught:
        parse_runner(text)

    assert "inline, threads, processes, dask, ray" in caught.value.hint


@pytest.mark.parametrize("text", ["threads,contents=s3://x", "ray=auto,contents=", "dask,contents=/directory"])
def test_contents_need_an_engine_and_a_url(text: str) -> None:
    """The error has an example."""
    with pytest.raises(BadParameterError, match="no URL for contents, or cannot use one") as caught:
        parse_runner(text)

    assert "contents=s3://" in caught.value.hint


def test_streams_are_refused_before_anything_runs(tmp_path: Path) -> None:
    """An engine has no streams: the error names the application and its data, and nothing is left behind."""
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("distributed is not installed")
    with pytest.raises(BadGraphError, match=r"reads 'Samples' while it is written.* runner 'dask' has no streams"):
        dropflow.run(EXAMPLES / "live-receiver.graph", runner="dask", directory=tmp_path / "run")

    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("kind", "extra"), [("dask", "dask-runner"), ("ray", "ray")])
def test_a_missing_package_is_named(kind: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match=f"--runner {kind} needs the package") as caught:
        dropflow.run(EXAMPLES / "hello.graph", runner=kind, directory=tmp_path / "run")

    assert caught.value.hint == f"pip install 'dropflow[{extra}]' in the environment that has dropflow"


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The session ends with the address and what to do."""
    engine = pytest.importorskip("dropflow.runners.dask_engine")
    monkeypatch.setattr(engine, "_CONNECT_SECONDS", 0.2)
    with pytest.raises(LinkError, match="no Dask scheduler that answers") as caught:
        dropflow.run(EXAMPLES / "hello.graph", runner="dask=tcp://127.0.0.1:1", directory=tmp_path / "run")

    assert caught.value.where == "tcp://127.0.0.1:1"
    assert "dask scheduler" in caught.value.hint


def test_a_runner_of_ones_own_is_made_by_a_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The function gets what executors are built from, and the number of workers. It runs the graph."""
    (tmp_path / "own_runner.py").write_text(_OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = dropflow.run(
        EXAMPLES / "nested-scatter-gather.graph", runner="own_runner:make", workers=3, directory=tmp_path / "run"
    )

    assert result.ok
    assert importlib.import_module("own_runner").made == [("run", 3)]
    with pytest.raises(BadParameterError, match=r"the function of the runner 'os:system' failed: TypeError"):
        dropflow.run(EXAMPLES / "hello.graph", runner="os:system", directory=tmp_path / "failed")
    with pytest.raises(BadParameterError, match=r"cannot be imported: .*No module named 'absent_runner'"):
        dropflow.run(EXAMPLES / "hello.graph", runner="absent_runner:make", directory=tmp_path / "other")
