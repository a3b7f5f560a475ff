import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import dropflow
from dropflow import errors, runners, testing

PUBLIC_NAMES = [
    "AmbiguousError",
    "App",
    "AppError",
    "AppFunction",
    "Argument",
    "BadFileError",
    "BadGraphError",
    "BadParameterError",
    "Interrupted",
    "Component",
    "ConflictError",
    "Data",
    "DropContent",
    "Context",
    "DropState",
    "DropflowError",
    "FailureReport",
    "FitsPath",
    "Graph",
    "GraphBuilder",
    "GraphRun",
    "InputData",
    "InputPath",
    "InternalError",
    "Kind",
    "Link",
    "LogicalGraph",
    "MeasurementSet",
    "MissingDependencyError",
    "NotFoundError",
    "OutputData",
    "OutputPath",
    "Parameter",
    "PhysicalGraph",
    "Port",
    "Problem",
    "RunResult",
    "SessionState",
    "Severity",
    "StorageError",
    "SubmittedGraph",
    "Template",
    "Translation",
    "UnknownComponentError",
    "UsageError",
    "WorldError",
    "__version__",
    "app",
    "check",
    "component",
    "glob",
    "load",
    "missing",
    "run",
    "save",
    "testing",
    "translate",
    "write_missing",
]

TESTING_NAMES = [
    "FAILED",
    "SKIPPED",
    "Attempted",
    "Given",
    "RunOutcome",
    "RunnerConformance",
    "Wanted",
    "draw",
    "outcome_of",
    "try_app",
]

RUNNER_NAMES = [
    "AttemptResult",
    "Batch",
    "BatchAnswer",
    "ContentRelay",
    "Engine",
    "EngineEvents",
    "Executor",
    "ExecutorSpec",
    "ExternalRunner",
    "Failure",
    "ResultLostError",
    "ResultSink",
    "Runner",
    "StreamOpened",
    "Task",
    "WorkerDiedError",
    "WorkerView",
    "aborted",
    "build_executor",
    "not_begun",
    "rest_not_begun",
    "stopped_after",
]


@pytest.mark.parametrize(
    ("module", "names"), [(dropflow, PUBLIC_NAMES), (testing, TESTING_NAMES), (runners, RUNNER_NAMES)]
)
def test_the_public_names_are_those_of_the_list(module: ModuleType, names: list[str]) -> None:
    """The public interface changes only together with this list; every name exists, and `dir` lists it."""
    assert sorted(module.__all__) == sorted(names)
    assert list(module.__all__) == sorted(module.__all__, key=lambda name: (_rank(name), name))
    assert dir(module) == sorted(module.__all__)
    for name in names:
        assert getattr(module, name) is not None, name


def _rank(name: str) -> int:
    """Sort constants first, then classes, then functions, as ruff does."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    """A misspelt name raises AttributeError with the name, as in any module."""
    with pytest.raises(AttributeError, match="module 'dropflow' has no attribute 'rum'"):
        _ = dropflow.rum  # type: ignore[attr-defined]


def test_every_error_class_that_is_exported_is_the_one_of_the_package() -> None:
    """`except dropflow.X` catches what the package raises."""
    for name in errors.__all__:
        if name in PUBLIC_NAMES:
            assert getattr(dropflow, name) is getattr(errors, name)


def test_importing_dropflow_is_quick() -> None:
    """`import dropflow` loads neither numpy nor zmq nor any other package of dropflow."""
    code = "import sys, dropflow; print(*sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
    wanted = ["numpy", "zmq", "msgspec", "translator", "managers", "dropflow"]
    done = subprocess.run([sys.executable, "-c", code, *wanted], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["dropflow", "dropflow.version"]


def test_the_reference_names_everything() -> None:
    """docs/reference/python.md mentions every public name."""
    page = (Path(__file__).parents[1] / "docs" / "reference" / "python.md").read_text(encoding="utf-8")

    assert [
        name for name in (*PUBLIC_NAMES, *TESTING_NAMES) if f"`{name}`" not in page and f"`{name}(" not in page
    ] == []


def test_public_names_come_from_modules_that_exist() -> None:
    """The table of origins in `dropflow` has no module or name that is gone."""
    for module, names in dropflow._MODULES.items():
        found = import_module(module)
        assert [name for name in names if not hasattr(found, name)] == []


def test_states_print_their_names() -> None:
    """A state of a session or a drop prints as its name, and is its number on the wire."""
    assert f"{dropflow.SessionState.FINISHED}" == str(dropflow.SessionState.FINISHED) == "FINISHED"
    assert str(dropflow.DropState.SKIPPED) == "SKIPPED"
    assert msgspec.json.encode(dropflow.SessionState.FINISHED) == b"4"


def test_every_error_is_public() -> None:
    """Programs can catch each error by a public name."""
    found = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}

    assert found == {name for name in errors.__all__ if name in found}
