"""Services run alongside the applications that use them."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dropflow.apps import service
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import kept_together, placement_groups
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.ids import drop_file_name
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.states import SessionState
from dropflow.testing.attempts import try_app
from tests.e2e.cluster import until
from tests.managers.node.conftest import Cluster
from tests.translator.drawing import Drawing, codes
from translator.logical import Field
from translator.pipeline import translate

Make = Callable[..., Cluster]

SERVE = """
echo $$ > pid.$DLG_UID
trap 'echo stopped > stopped.$DLG_UID; exit 0' TERM
echo "pid.$DLG_UID" > {address}.new; mv {address}.new {address}
while :; do sleep 0.05; done
"""
USE = "a=$(cat {address}) && kill -0 $(cat $a) && [ ! -e stopped.${a#pid.} ] && echo used > {out}"


class Commands(Drawing):
    """A drawing whose applications are commands."""

    def __init__(self, commands: dict[str, str]) -> None:
        super().__init__()
        self.commands = commands

    def application(self, name: str) -> dict[str, object]:
        """Return the fields of a command with the ports ``address`` and ``out``."""
        usages = {"address": "OutputPort" if name == "serve" else "InputPort", "out": "OutputPort"}
        ports = {
            port: Field(id=f"{name}.{port}", name=port, usage=usage, encoding="path", type="Object")
            for port, usage in usages.items()
        }
        return {
            "dropclass": "dlg.apps.bash_shell_app.BashShellApp",
            "command": self.commands.get(name, "true"),
            **ports,
        }


def drawn(serve: str = SERVE, use: str = USE, copies: int = 1) -> Commands:
    """Return a service in each copy of a scatter, with three users in it and one after them."""
    drawing = Commands({"serve": serve, "use": use, "late": use})
    with drawing.scatter("S", copies), drawing.construct("Service", "V", app="serve"):
        drawing.data("address")
        with drawing.scatter("T", 3):
            drawing.app("use").data("made", "File")
        drawing.app("late").data("last", "File")
        drawing.app("other")
    drawing.link("serve", "address", "use", ports=("serve.address", "")).link(
        "address", "late", ports=("", "late.address")
    )
    drawing.links[1] = drawing.links[1].__class__(source="address", target="use", target_port="use.address")
    drawing.link("use", "made", ports=("use.out", "")).link("late", "last", ports=("late.out", ""))
    return drawing.link("made", "late")  # type: ignore[return-value]


def graph_of(*arguments: object, **options: object) -> PhysicalGraph:
    """Return the physical graph of such a drawing."""
    return translate(drawn(*arguments, **options).graph()).graph  # type: ignore[arg-type]


def run(graph: PhysicalGraph, directory: Path, runner: str = "threads") -> SessionState:
    """Run a graph."""
    return local_run.run(
        graph, local_run.prepare_directory(directory, overwrite=True), RunOptions(runner=runner)
    ).status


def test_the_counts_of_a_service() -> None:
    """Two copies of a service with 3 + 1 + 1 users.

    Drops of a copy: serve, address, running, stop 4; use, made 3 + 3; late, last 2; other 1; drops from use
    (3), late and other to stop 5; the end of other, which has no output, 1: 19, twice 38. Edges of a copy:
    serve to address and running 2, running to stop and other 2, address to use and late 4, use-made 3,
    made-late 3, late-last 1, users to their drops 5 and from there to stop 5, other to its end 1: 26, twice 52.
    """
    graph = graph_of(copies=2)

    assert (graph.drops, graph.edges) == (38, 52)
    assert codes(drawn()) == []


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "threads", "processes"])
def test_a_service_runs_while_it_is_used(tmp_path: Path, runner: str) -> None:
    """Each user finds the process of its service, which is stopped once after all of them."""
    assert run(graph_of(copies=2), tmp_path / "run", runner) is SessionState.FINISHED
    files = tmp_path / "run" / "files"

    assert len(list(files.glob("stopped.*"))) == 2
    for pid in files.glob("pid.*"):
        assert not Path("/proc", pid.read_text().strip()).exists()


@pytest.mark.slow
def test_a_failed_user_fails_the_session_and_the_service_is_stopped(tmp_path: Path) -> None:
    """The session fails with the user, and no process is left."""
    assert run(graph_of(SERVE, "exit 3"), tmp_path / "run") is SessionState.FAILED
    files = tmp_path / "run" / "files"

    assert len(list(files.glob("stopped.*"))) == 1


@pytest.mark.parametrize(
    ("serve", "text"),
    [
        ("exit 4", "the service ended with status 4 before it was ready"),
        ("exit 4 " + "#" * 200_000, "the command cannot be started: [Errno 7] Argument list too long"),
        pytest.param(
            "echo here > {address}; sleep 0.4; exit 5",
            "the service ended with status 5 before its last user",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_service_that_ends_by_itself_fails_the_session(tmp_path: Path, serve: str, text: str) -> None:
    """Before it is ready, or before its last user has ended."""
    assert run(graph_of(serve, "sleep 1; echo used > {out}"), tmp_path / "run") is SessionState.FAILED
    assert text in (tmp_path / "run" / "summary.json").read_text()


@pytest.mark.slow
def test_a_service_that_is_not_ready_in_time_is_stopped(tmp_path: Path) -> None:
    """The error names the file that is still empty; the process has ended."""
    drawing = drawn("echo $$ > pid; : > {address}; sleep 60")
    serve = next(node for node in drawing.nodes if node.id == "serve")
    limit = Field(id="serve.limit", name="start_timeout", value=0.3, type="Float")
    drawing.nodes[drawing.nodes.index(serve)] = serve.__class__(
        **{name: getattr(serve, name) for name in serve.__struct_fields__} | {"fields": (*serve.fields, limit)}
    )
    graph = translate(drawing.graph()).graph

    assert run(graph, tmp_path / "run") is SessionState.FAILED
    assert "not ready after 0.3 s: it has written nothing to " in (tmp_path / "run" / "summary.json").read_text()
    assert not Path("/proc", (tmp_path / "run" / "files" / "pid").read_text().strip()).exists()


@pytest.mark.slow
def test_a_question_that_gets_no_answer_ends_with_the_time_to_start(tmp_path: Path) -> None:
    """A command in `ready` that waits for the service without end does not keep the service from failing."""
    fields = {"command": "exec sleep 60", "ready": "sleep 60", "start_timeout": 0.5}
    arguments = [Argument(name=name, value=value) for name, value in fields.items()]

    got = try_app("dropflow.apps.service.ServiceApp", tmp_path, outputs=(), fields=arguments)

    assert "not ready after 0.5 s: 'sleep 60' does not succeed" in got.failure.text


def stops_after(drawing: Drawing, first: str, second: str) -> bool:
    """Return whether the stop of one service waits for that of another."""
    graph = translate(drawing.graph()).graph
    row = {template.key: number for number, template in enumerate(graph.templates)}
    reached, waiting = set(), [f"{first}-stop"]
    while waiting:
        key = waiting.pop()
        reached.add(key)
        targets = (graph.templates[link.target].key for link in graph.links if link.source == row[key])
        waiting += [target for target in targets if target not in reached]
    return f"{second}-stop" in reached


def test_a_service_inside_another_one_is_stopped_before_it() -> None:
    """It may use the outer one until its own end; so it is for any depth."""
    drawing = Commands({})
    with ExitStack() as stack:
        for name in ("outer", "middle", "inner"):
            stack.enter_context(drawing.construct("Service", name.upper(), app=name))
        drawing.app("use")

    assert stops_after(drawing, "inner", "middle")
    assert stops_after(drawing, "middle", "outer")
    assert not stops_after(drawing, "outer", "inner")


def test_a_service_that_reads_an_output_of_another_one_is_stopped_before_it() -> None:
    """Such as a server that gets the address of its database: it uses that as long as it runs."""
    drawing = Commands({})
    with drawing.construct("Service", "V", app="base"):
        drawing.data("address")
    with drawing.construct("Service", "W", app="server"):
        drawing.app("use")
    drawing.link("base", "address", "server")

    assert stops_after(drawing, "server", "base")
    assert not stops_after(drawing, "base", "server")


def test_a_service_is_a_command() -> None:
    """Another application is LG088; a service without application is LG032."""
    drawing = Drawing()
    with drawing.construct("Service", "V", app="serve"):
        drawing.data("d")
    assert codes(drawing) == ["LG088"]
    drawing = Drawing()
    with drawing.construct("Service", "V"):
        drawing.data("d")
    assert codes(drawing) == ["LG032"]


@pytest.mark.slow
def test_the_output_of_a_service_is_in_the_log_of_its_drop(tmp_path: Path) -> None:
    """Also if the id of the drop is no name of a file."""
    template = Template(
        key="s", name="s", kind=Kind.APP, arguments=(Argument(name="command", value="echo hello; exec sleep 60"),)
    )
    context: Any = SimpleNamespace(
        directory=tmp_path / "files", oid="a/b", session="s", index=(), inputs=(), outputs=(), log=lambda _: None
    )
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / f"{drop_file_name('a/b')}.log"
    service.ServiceApp(template).run(context)
    found = service.remove_service((str(context.directory), "s", ()))
    assert found is not None

    assert until(lambda: log.exists() and log.read_text() == "hello\n")
    found.stop(0.0)


def test_a_log_that_cannot_be_written_does_not_end_the_service(tmp_path: Path) -> None:
    """Such as one on a full disk: the output is lost, as that of a command is."""
    service._limited(tmp_path / "gone" / "service.log")(b"output")


@pytest.mark.slow
def test_a_service_runs_on_several_nodes(make_cluster: Make) -> None:
    """Start and stop are on one node; users on others find the content of its address."""
    graph = graph_of(SERVE, "test -s {address} && echo used > {out}", copies=2)
    groups = placement_groups(graph)
    assert groups is not None
    part = np.random.default_rng(3).integers(0, 3, graph.drops).astype(np.int32)
    part = kept_together(part, groups, 3, np.ones(graph.drops))
    ended = make_cluster(3).run(replace(graph, part=part))
    assert {detail.status for detail in ended.values()} == {"FINISHED"}, ended
