"""User code that raises or returns anything: the session ends, and reports the drop."""

import signal
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from dropflow.engine.journal import replay
from dropflow.errors import BadGraphError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.sessions import local_run
from dropflow.states import SessionState

MEMORY = "dlg.data.drops.memory.InMemoryDROP"
FILE = "dlg.data.drops.file.FileDROP"

BROKEN = """
class Broken(Exception):
    def __str__(self):
        raise SystemExit(9)
    __repr__ = __str__
"""
RAISED = {
    "broken": (BROKEN + "def f():\n    raise Broken", "its text is not available: __str__ raised SystemExit"),
    "surrogate": ("def f():\n    raise ValueError('\\udcff')", r"ValueError: \udcff"),
    "huge": ("def f():\n    raise ValueError('x' * 30_000_000)", "characters left out"),
    "exit": ("import sys\ndef f():\n    sys.exit('\\ud800')", "sys.exit"),
    "interrupt": ("def f():\n    raise KeyboardInterrupt('mine')", "KeyboardInterrupt: mine"),
    "generator": ("def f():\n    raise GeneratorExit", "GeneratorExit"),
    "base": ("class Own(BaseException):\n    pass\ndef f():\n    raise Own('own')", "Own: own"),
    "deep": ("def f():\n    f()", "RecursionError"),
    "group": ("def f():\n    raise ExceptionGroup('all', [ValueError('\\udcff'), TypeError()])", "ExceptionGroup: all"),
    "unpicklable": (
        "def f():\n    error = ValueError('held')\n    error.hold = (x for x in [])\n    raise error",
        "held",
    ),
    "module": ("def f():\n    raise ModuleNotFoundError('gone', name=5)", "gone"),
    "reduce": (
        "class Odd:\n    def __reduce__(self):\n        raise SystemExit\ndef f():\n    return Odd()",
        "sys.exit()",
    ),
    "fine": ("def f():\n    return 1", ""),
}


def _function(builder: GraphBuilder, name: str, code: str, *, component: str = MEMORY, path: str = "") -> None:
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    builder.app(name, component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=fields)
    named = (Argument(name="filepath", value=path),) if path else ()
    builder.data(f"{name}-out", component=component, category="Memory", arguments=named)
    builder.connect(name, f"{name}-out")


@pytest.fixture
def _ctrl_c_cancels() -> Iterator[None]:
    """Ignore SIGINT, as the command line does with a handler of its own."""
    former = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("_ctrl_c_cancels")
@pytest.mark.parametrize("runner", ["inline", "threads", "processes"])
def test_everything_that_user_code_raises_fails_its_attempt(runner: str, tmp_path: Path) -> None:
    """In each runner, every such attempt fails with its own reason, others complete, and the journal can be read."""
    builder = GraphBuilder("hostile")
    for name, (code, _) in RAISED.items():
        _function(builder, name, code)
    graph = builder.build()
    result = local_run.run(graph, directory=tmp_path, runner=runner, workers=1)
    texts = {failure.name: failure.text for failure in result.failures}

    assert result.status is SessionState.FAILED
    assert texts.keys() == RAISED.keys() - {"fine"}
    assert [name for name in texts if RAISED[name][1] not in texts[name]] == []
    assert replay(graph, tmp_path / "journal.dfj").core.status is SessionState.FAILED
    assert msgspec.json.decode((tmp_path / "summary.json").read_bytes())["status"] == "FAILED"


@pytest.mark.parametrize(
    ("path", "said"), [("a\0b", "has a NUL character"), ("a\udcffb", "cannot be written in UTF-8")]
)
@pytest.mark.parametrize("where", ["field", "port"])
def test_a_path_that_cannot_be_written_is_reported(path: str, said: str, where: str, tmp_path: Path) -> None:
    """A path in a field is refused before the run; a path that an application computes fails its attempt."""
    if where == "field":
        builder = GraphBuilder("path")
        _function(builder, "one", "def f():\n    return 1", component=FILE, path=path)
        with pytest.raises(BadGraphError, match="DF104") as caught:
            local_run.run(builder.build(), directory=tmp_path)
        assert said in str(caught.value.problems[0])
        return
    result = local_run.run(_named_by_input(path), directory=tmp_path, runner="threads")

    assert result.status is SessionState.FAILED
    assert said in result.failures[0].text


def _named_by_input(path: str) -> PhysicalGraph:
    """Return an application whose input is the name of the file that it writes."""
    builder = GraphBuilder("path")
    code = f"def name():\n    return {path.encode('unicode_escape').decode()!r}.encode().decode('unicode_escape')"
    fields = (
        Argument(name="func_name", value="name"),
        Argument(name="func_code", value=code),
        Argument(name="out", usage="OutputPort", encoding="pickle"),
    )
    builder.app("name", component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=fields)
    builder.data("named", component=MEMORY, category="Memory")
    fields = (
        Argument(name="out", usage="OutputPort", encoding="path"),
        Argument(name="command", value="touch {out}"),
    )
    builder.app("write", component="dlg.apps.bash_shell_app.BashShellApp", category="BashShellApp", arguments=fields)
    builder.data("written", component=FILE, category="File")
    builder.connect("name", "named", source_port="out")
    builder.connect("named", "write", target_port="out")
    builder.connect("write", "written", source_port="out")
    return builder.build()


@pytest.mark.parametrize("method", ["__init__", "parameters", "run"])
@pytest.mark.parametrize("raised", ["Broken()", "SystemExit(3)", "ValueError('\\udcff')"])
def test_the_class_of_a_user_may_raise_anywhere(
    method: str, raised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in the constructor is refused before the run; one in `run` fails the attempt."""
    module = f"hostile_{method.strip('_')}_{abs(hash(raised))}"
    source = f"""
        from dropflow.apps.api import App
        {{}}
        class Hostile(App):
            component = None
            parameters = property(lambda self: self.meet("parameters"))
            def meet(self, method):
                if method == {method!r}:
                    raise {raised}
            def __init__(self, template):
                self.template = template
                self.meet("__init__")
            def run(self, context):
                self.meet("run")
    """
    (tmp_path / f"{module}.py").write_text(dedent(source).replace("{}", BROKEN))
    monkeypatch.syspath_prepend(tmp_path)
    builder = GraphBuilder("hostile")
    builder.app("one", component=f"{module}.Hostile", category="PythonApp")
    builder.data("out", component=MEMORY, category="Memory")
    builder.connect("one", "out")
    if method == "run":
        result = local_run.run(builder.build(), directory=tmp_path / "session", runner="threads")
        assert result.status is SessionState.FAILED
        return
    with pytest.raises(BadGraphError, match="cannot be made"):
        local_run.run(builder.build(), directory=tmp_path / "session")
