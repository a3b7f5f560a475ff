"""What runs is what has to, on random graphs and edits, against a slow and obvious model of it."""

import copy
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dropflow
from dropflow.api.client import Client
from dropflow.cli.main import commands
from dropflow.data.file import FILES
from dropflow.execution.content_location import Handle
from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template
from dropflow.reuse.log import taken_results
from dropflow.reuse.reasons import NodeForecast
from dropflow.reuse.result_store import Record, ResultStore, StoredContent, key_of
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from tests.drawn_graphs import data, draw, function
from tests.e2e.cluster import PATIENT
from tests.processes import Running

CODE = """
def f(shift=0, modulus=7, label="", **inputs):
    texts = []
    for name in sorted(inputs):
        texts += inputs[name] if isinstance(inputs[name], list) else [inputs[name]]
    parts = [text.strip(".").split(":") for text in texts]
    total = sum(place * int(number) for place, (_, number) in enumerate(parts, 1))# change
    channels = "+".join(sorted({head.partition("/")[2] for head, _ in parts}))
    return f"{label}/{channels}:{(total + shift) % modulus}" + "." * 5000
"""
CHANGES = ("", "  # a comment", " + 0", " + 1")
"""The first two are the same code; the third one gives the same results."""


@dataclass
class Node:
    """A function of what some earlier ones gave: one application, or one for each channel."""

    inputs: list[str]
    is_wide: bool
    shift: int = 0
    modulus: int = 7
    change: int = 0


class Shape:
    """A random acyclic graph of functions, and the contents of the file that each channel begins with."""

    def __init__(self, nodes: list[Node], folder: Path, *, has_labels: bool) -> None:
        self.nodes = {f"f{row}": node for row, node in enumerate(nodes)}
        self.made = len(nodes)
        self.has_labels = has_labels
        self.folder = folder
        self.files: list[str] = []
        for number in (1, 2):
            self.write(len(self.files), number)

    def write(self, channel: int, number: int) -> None:
        """Write the file of a channel: every second number changes bytes, and not what functions read."""
        text = json.dumps(f"in/c{channel}:{number // 2}") + " " * (number % 2)
        self.files[channel : channel + 1] = [text]
        (self.folder / f"in{channel:02}").write_text(text)

    def sources(self, name: str) -> list[str]:
        """Return what a function reads, in order: a function of all channels reads one other with channels at least."""
        node = self.nodes[name]
        has_channels = any(self.nodes[one].is_wide for one in node.inputs)
        return [*([] if has_channels or not node.is_wide else ["in"]), *node.inputs]

    def channels(self, name: str) -> list[int]:
        """Return the channels of a function, or of the files."""
        return list(range(len(self.files) if name == "in" or self.nodes[name].is_wide else 1))

    def reads(self, name: str, channel: int) -> list[list[tuple[str, int]]]:
        """Return what one application reads at each of its ports."""
        is_wide = self.nodes[name].is_wide
        return [
            [(source, channel)]
            if is_wide and len(self.channels(source)) > 1
            else [(source, k) for k in self.channels(source)]
            for source in self.sources(name)
        ]

    @property
    def leaves(self) -> set[tuple[str, int]]:
        """The applications whose values nothing reads."""
        read = {one for node in self.nodes.values() for one in node.inputs}
        return {(name, channel) for name in self.nodes if name not in read for channel in self.channels(name)}

    def label(self, name: str) -> str:
        """Return a value that tells results of functions apart; without it two of them may give the same."""
        return name if self.has_labels else ""

    def edit(self, kind: str, row: int, number: int) -> None:
        """Change the graph, or a file."""
        name = [*self.nodes][row % len(self.nodes)]
        node = self.nodes[name]
        if kind == "modulus":
            node.modulus = 2 + number
        elif kind in ("shift", "change"):
            setattr(node, kind, number)
        elif kind == "order":
            node.inputs.reverse()
        elif kind == "input":
            self.write(row % len(self.files), number)
        elif kind == "channel":
            self.write(len(self.files), number)
        elif kind == "branch":
            inputs = list(dict.fromkeys((name, [*self.nodes][number % len(self.nodes)])))
            self.nodes[f"f{self.made}"] = Node(inputs, is_wide=node.is_wide)
            self.made += 1
        elif kind == "removed" and len(self.nodes) > 1:
            del self.nodes[name]
            for other in self.nodes.values():
                other.inputs = [one for one in other.inputs if one != name]

    def graph(self) -> PhysicalGraph:
        """Return it as a graph, with one template for the applications of a function and one for what they give."""
        axes = (Axis("scatter", "channels", "scatter", len(self.files)),)
        pattern = (Argument(name="pattern", value=f"{self.folder}/in*"),)
        files = Template(key="in", name="in", kind=Kind.DATA, axes=axes, arguments=pattern, component=FILES.dropclass)
        templates, links, edges = [], [], []
        first: dict[str, int] = {}
        drops: list[tuple[int, int]] = []

        def add(template: Template, channels: list[int]) -> None:
            first[template.name] = len(drops)
            drops.extend((len(templates), channel) for channel in channels)
            templates.append(template)

        def connect(source: str, target: str, pairs: list[tuple[int, int]], *ports: str) -> None:
            rows = drops[first[source]][0], drops[first[target]][0]
            edges.extend((first[source] + one, first[target] + other, len(links)) for one, other in pairs)
            links.append(Link(source=rows[0], target=rows[1], source_port=ports[0], target_port=ports[1]))

        if any("in" in self.sources(name) for name in self.nodes):
            add(files, self.channels("in"))
        for name, node in self.nodes.items():
            channels, sources = self.channels(name), self.sources(name)
            values = {"shift": node.shift, "modulus": node.modulus, "label": self.label(name)}
            fields = [
                Argument(name="func_name", value="f"),
                Argument(name="func_code", value=CODE.replace("# change", CHANGES[node.change])),
                *(
                    Argument(
                        name=key,
                        value=value,
                        type="String" if key == "label" else "Integer",
                        parameter_type="ApplicationArgument",
                    )
                    for key, value in values.items()
                ),
                *(Argument(name=f"p{port}", usage="InputPort", encoding="json") for port in range(len(sources))),
                Argument(name="out", usage="OutputPort", encoding="json"),
            ]
            gathers = [f"p{port}" for port, one in enumerate(sources) if len(self.channels(one)) > len(channels)]
            plain = Template(key=name, name=name, kind=Kind.APP, axes=axes if node.is_wide else ())
            app = {"component": "dlg.apps.pyfunc.PyFuncApp", "category": "PyFuncApp", "collects": tuple(gathers)}
            add(msgspec.structs.replace(plain, arguments=tuple(fields), **app), channels)
            memory = {"component": "dlg.data.drops.memory.InMemoryDROP", "name": f"d-{name}", "key": f"d-{name}"}
            add(msgspec.structs.replace(plain, kind=Kind.DATA, **memory), channels)
            connect(name, f"d-{name}", [(one, one) for one in channels], "out", "")
            for port, source in enumerate(sources):
                pairs = [(one, k) for k in channels for _, one in self.reads(name, k)[port]]
                connect(source if source == "in" else f"d-{source}", name, pairs, "", f"p{port}")
        rows, ends = np.array(drops, np.int32), np.array(edges, np.int32)
        columns = {"template": rows[:, 0], "instance": rows[:, 1]}
        columns |= {"source": ends[:, 0], "target": ends[:, 1], "link": ends[:, 2]}
        return from_columns(name="random", prefix="random", templates=templates, links=links, **columns)


class Model:
    """The store as it should be: what was computed, by names and contents only."""

    def __init__(self) -> None:
        self.deep: dict[Any, str] = {}
        self.by_values: dict[Any, tuple[str, Any]] = {}
        self.contents: set[str] = set()
        self.last: dict[tuple[str, int], tuple[Any, Any]] = {}

    def run(self, shape: Shape) -> tuple[dict[tuple[str, int], list[str]], set[tuple[str, int]]]:
        """Return which applications cannot be taken before the run, and why; and which run. Remember these."""
        deep: dict[Any, Any] = {("in", channel): text for channel, text in enumerate(shape.files)}
        value: dict[Any, str] = {("in", channel): json.loads(text) for channel, text in enumerate(shape.files)}
        content = dict(deep)
        own: dict[str, dict[str, Any]] = {}
        apps = [(name, channel) for name in shape.nodes for channel in shape.channels(name)]
        for app in apps:
            name, channel = app
            node, reads = shape.nodes[name], shape.reads(name, channel)
            code = CODE.replace("# change", CHANGES[node.change])
            given: dict[str, Any] = {"shift": node.shift, "modulus": node.modulus, "label": shape.label(name)}
            own[name] = {**{f"parameter `{key}`": one for key, one in given.items()}, "function `f`": node.change or 1}
            given |= {f"p{port}": [value[one] for one in several] for port, several in enumerate(reads)}
            space: dict[str, Any] = {}
            exec(code, space)  # noqa: S102 - the text above
            content[app] = value[app] = space["f"](**given)
            names = tuple(tuple(one for one, _ in several) for several in reads)
            deep[app] = (*own[name].values(), channel, names, *(deep[one] for several in reads for one in several))
        needed, asks = shape.leaves, {}
        for app in reversed(apps):
            if app in needed and self.deep.get(deep[app]) not in self.contents:
                asks[app] = self._reasons(
                    app, own[app[0]], [one for port in shape.reads(*app) for one in port], content
                )
                needed |= {one for several in shape.reads(*app) for one in several}
        ran = set()
        for app in reversed(asks):
            reads = shape.reads(*app)
            inputs = tuple(tuple((one, content[one]) for one in several) for several in reads)
            key = (*own[app[0]].values(), app[1], inputs)
            before = self.by_values.get(key)
            if before is None or before[0] not in self.contents:
                ran.add(app)
                self.contents.add(value[app])
            elif before[1] == deep[app]:
                continue
            self.by_values[key] = value[app], deep[app]
            self.deep[deep[app]] = value[app]
            self.last[app] = own[app[0]], [(one, content[one]) for several in reads for one in several]
        return asks, ran

    def _reasons(
        self, app: tuple[str, int], own: dict[str, Any], inputs: list[tuple[str, int]], content: dict[Any, str]
    ) -> list[str]:
        """Return the beginnings of all reasons for which an application may run."""
        if app not in self.last:
            return ["not run before"]
        before, read = self.last[app]
        found = [f"{part}: line 7 changed" for part in own if part[0] == "f" and before[part] != own[part]]
        found += [
            f"{part}: {before[part]} -> {own[part]}" for part in own if part[0] == "p" and before[part] != own[part]
        ]
        if len(read) != len(inputs):
            found.append(f"number of inputs: {len(read)} -> {len(inputs)}")
        elif [one for one, _ in read] != inputs:
            found.append("order of inputs" if sorted(one for one, _ in read) == sorted(inputs) else "inputs")
        else:
            found += [f"input in{one[1]:02} changed" for one, text in read if one[0] == "in" and text != content[one]]
        return found


_SMALL = st.integers(0, 3)
_LOSSES = ("deleted", "damaged")
_EDITS = ("shift", "modulus", "change", "input", "order", "channel", "branch", "removed", *_LOSSES)


@st.composite
def _nodes(draw: st.DrawFn) -> list[Node]:
    found: list[Node] = []
    for row in range(draw(st.integers(1, 5))):
        before = draw(st.lists(st.integers(0, row - 1), max_size=2, unique=True)) if row else []
        inputs = [f"f{one}" for one in before]
        found.append(Node(inputs, is_wide=draw(st.booleans()), shift=draw(_SMALL), modulus=2 + draw(_SMALL)))
    return found


@pytest.mark.slow
@example(  # twins that differ by a comment
    nodes=[Node([], False), Node(["f0"], False, change=1), Node(["f0"], False)], edits=[("shift", 0, 1)]
)
@example(  # a damaged content that was not looked at is made again by other code
    nodes=[Node([], False, shift=2), Node(["f0"], False)], edits=[("damaged", 0, 0), ("shift", 0, 9), ("branch", 0, 0)]
)
@example(  # the content of an input is gone, and its other consumer is removed
    nodes=[Node([], True), Node([], True, shift=2), Node(["f0", "f1"], False), Node(["f1"], False), Node([], False)],
    edits=[("damaged", 5, 0), ("removed", 2, 0)],
)
@settings(
    max_examples=settings.default.max_examples // 8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    nodes=_nodes(),
    edits=st.lists(st.tuples(st.sampled_from(_EDITS), st.integers(0, 5), _SMALL), min_size=1, max_size=4),
)
def test_what_runs_is_what_has_to(
    tmp_path_factory: Any, monkeypatch: Any, nodes: list[Node], edits: list[tuple[str, int, int]]
) -> None:
    """After each edit of values, code, files and shape, and each loss in the store; the reason before a run tells it.

    The values at the end are those of a run without a store.
    """
    folder: Path = tmp_path_factory.mktemp("oracle")
    (folder / "files").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    model, options = Model(), RunOptions(runner="inline", store=str(folder / "store"))
    shape = Shape(copy.deepcopy(nodes), folder / "files", has_labels=any(kind in _LOSSES for kind, _, _ in edits))
    for number, edit in enumerate([None, *edits, None]):
        if edit is not None and edit[0] in _LOSSES:
            _lose(folder / "store", model, edit)
        elif edit is not None:
            shape.edit(*edit)
        graph = shape.graph()
        foreseen = {one.node: one for one in local_run.foresee(graph, options)}
        place = folder / str(number)
        result = local_run.run(graph, place, RunOptions(runner="inline", reuse=True, store=options.store, check=True))
        assert result.status.name == "FINISHED", result.failures
        taken = taken_results(place)
        apps = {drop: graph.templates[graph.template[drop]].name for drop in range(graph.drops)}
        ran = {
            (name, int(graph.instance[drop]))
            for drop, name in apps.items()
            if name in shape.nodes and drop not in taken
        }
        asks, expected = model.run(shape)
        assert ran == expected, (number, ran, expected)
        assert _values(place) == _values(folder / "plain", graph)
        for name in shape.nodes:
            _check_forecast(
                foreseen[name], [asks[ask] for ask in asks if ask[0] == name], sum(n == name for n, _ in ran)
            )


def _lose(store: Path, model: Model, edit: tuple[str, int, int]) -> None:
    """Delete or damage the file of a result in the store."""
    found = [path for path in sorted((store / "contents").rglob("*")) if path.is_file()]
    results = [path for path in found if path.stat().st_size > 5000]
    if results:
        path = results[edit[1] % len(results)]
        text = path.read_text()
        path.unlink()
        if edit[0] == "damaged":
            path.write_text(text[:1000])
        model.contents.discard(json.loads(text))


def _check_forecast(forecast: NodeForecast, asks: list[list[str]], ran: int) -> None:
    """Check how many applications of a node were said to run, and that each reason is there, and no other."""
    assert ran <= forecast.runs + forecast.waits <= len(asks)
    if not ran:
        return
    expected = {reason for reasons in asks for reason in reasons}
    if forecast.runs and not expected:
        assert forecast.reasons[0] == "its stored result is gone" or "input" in forecast.reasons[0]
    for reason in expected if len(expected) <= 4 and ran == len(asks) else ():
        assert any(one.startswith(reason) for one in forecast.reasons), (reason, forecast)


def _values(place: Path, graph: PhysicalGraph | None = None) -> dict[str, bytes]:
    if graph is not None:
        dropflow.run(graph, directory=place, runner="inline", overwrite=True)
    return {path.name: path.read_bytes() for path in (place / "results").iterdir()}


# The result store: contents by digest, records by key, many writers, and a bound for its size.


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultStore:
    """An empty store, with a key of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return ResultStore(tmp_path / "store")


def _file(path: Path, content: bytes) -> Handle:
    path.write_bytes(content)
    return Handle(kind="file", location=str(path), size=len(content))


def _add(store: ResultStore, name: str, *outputs: StoredContent) -> str:
    key = key_of(name)
    store.add(Record((key, ""), outputs, (), (), key_of("drop", name), "session", "host", 1.0, 2.0))
    return key


def test_a_directory_comes_back_as_it_was(store: ResultStore, tmp_path: Path) -> None:
    """With its links, empty directories and programs; only this user can enter the store."""
    folder = tmp_path / "made"
    (folder / "empty").mkdir(parents=True)
    (folder / "large").write_bytes(b"x" * 10_000)
    (folder / "link").symlink_to("large")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    content = store.keep(Handle(kind="directory", location=str(folder), size=10_010))
    modes = {path: path.stat().st_mode for path in (tmp_path / "store").rglob("*")}
    store.place(content, str(tmp_path / "again"))

    assert store.is_there(content)
    assert {path: path.stat().st_mode for path in (tmp_path / "store").rglob("*")} == modes
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == ["empty", "large", "link", "run.sh"]
    assert (tmp_path / "again" / "link").read_bytes() == b"x" * 10_000
    assert os.access(tmp_path / "again" / "run.sh", os.X_OK)
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0


def test_a_content_that_may_change_later_is_copied(store: ResultStore, tmp_path: Path) -> None:
    """Others may be the same file; if that is changed in place, the content does not count any more."""
    copied = store.keep(_file(tmp_path / "one", b"a" * 5000), linked=False)
    linked = store.keep(_file(tmp_path / "two", b"b" * 5000))
    for name in ("one", "two"):
        with (tmp_path / name).open("r+b") as stream:
            stream.write(b"changed")

    assert store.is_there(copied)
    is_same_file = (tmp_path / "two").stat().st_nlink > 1
    assert store.is_there(linked) is not is_same_file


def test_a_record_of_another_key_or_user_is_not_found(store: ResultStore, tmp_path: Path) -> None:
    """A file that was renamed, changed, or signed with another key is ignored."""
    key, other = _add(store, "a"), key_of("b")
    path = tmp_path / "store" / "records" / key[:2] / key
    renamed = tmp_path / "store" / "records" / other[:2] / other
    renamed.parent.mkdir(exist_ok=True)
    renamed.write_bytes(path.read_bytes())

    assert store.find(key) is not None
    assert store.find(other) is None
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert store.find(key) is None


def test_what_was_used_last_stays(store: ResultStore, tmp_path: Path) -> None:
    """A smaller limit removes the results that were not used for longest, and their contents."""
    keys = []
    for number, name in enumerate("abc"):
        keys.append(_add(store, name, store.keep(_file(tmp_path / name, name.encode() * 6000), linked=False)))
        path = tmp_path / "store" / "records" / keys[-1][:2] / keys[-1]
        os.utime(path, (1000 + number, 1000 + number))
    assert store.find(keys[0]) is not None
    use = store.prune(15_000)

    assert [store.find(key) is not None for key in keys] == [True, False, True]
    assert (use.removed_records, use.removed_contents, use.contents) == (1, 1, 2)
    assert use.size <= 15_000
    assert store.prune(0).size == 0


@pytest.mark.parametrize(("large", "limit", "kept"), [(12_000, 16_000, ["new"]), (30_000, 20_000, ["new", "old"])])
def test_no_result_outlives_one_that_was_used_later(
    store: ResultStore, tmp_path: Path, large: int, limit: int, kept: list[str]
) -> None:
    """Else small results without any use would stay for good; one above the whole limit drives out no other."""
    keys = {}
    for age, (name, size) in enumerate((("new", 6000), ("middle", large), ("old", 5000))):
        keys[name] = _add(store, name, store.keep(_file(tmp_path / name, os.urandom(size)), linked=False))
        os.utime(tmp_path / "store" / "records" / keys[name][:2] / keys[name], (9000 - age, 9000 - age))
    store.prune(limit)

    assert [name for name, key in keys.items() if store.find(key) is not None] == kept


def test_contents_of_no_record_share_the_limit(store: ResultStore, tmp_path: Path) -> None:
    """Young contents, whose record may be on its way, stay only as far as the limit of all of them allows."""
    for number in range(20):
        store.keep(_file(tmp_path / str(number), bytes([number]) * 6000), linked=False)
    use = store.prune(60_000)

    assert use.contents == 10
    assert use.size <= 60_000


@pytest.mark.slow
def test_many_writers_of_the_same_result_leave_one(store: ResultStore, tmp_path: Path) -> None:
    """Each has a store of its own in the same directory, as processes on several hosts have."""

    def write(number: int) -> bool:
        own = ResultStore(store.directory)
        content = own.keep(_file(tmp_path / f"part{number}", b"same" * 3000))
        record = own.find(_add(own, "same", content))
        return record is not None and own.is_there(record.outputs[0])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, range(40)))
    use = store.use()
    assert (use.records, use.contents) == (1, 1)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


# Sessions on nodes take results of earlier sessions.


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Running]:
    """An island over two nodes, which share a store."""

    def start(name: str) -> Running:
        more = ("--name", name, "--port", 0, "--links-port", 0, "--workers", 1, *PATIENT)
        variables = (f"DROPFLOW_STORE={tmp_path / 'store'}", f"XDG_CONFIG_HOME={tmp_path / 'config'}")
        return Running(tmp_path, "node", *more, before=("env", f"PATH={os.environ['PATH']}", *variables))

    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        urls = [stack.enter_context(one).ready["url"] for one in pool.map(start, ("n1", "n2"))]
        yield stack.enter_context(Running(tmp_path, "island", "--port", 0, "--nodes", ",".join(urls), *PATIENT))


def _graph(path: Path, factor: int) -> Path:
    nodes = [function("Make", "def Make(input=0):\n    return 7")]
    nodes += [function("Twice", f"def Twice(input):\n    return {factor} * input")]
    nodes += [function("Show", "def Show(input):\n    return 'x' * 9000 + str(input)"), *map(data, ("a", "b", "text"))]
    return draw(path, nodes, "Make > a > Twice > b > Show > text")


@pytest.mark.slow
def test_a_session_on_two_nodes_takes_what_an_earlier_one_computed(island: Running, tmp_path: Path) -> None:
    """Numbers of applications that ran and that were reused are in the answer, and the origin in the reasons."""
    url, token = island.ready["url"], island.ready["token"]

    store = {"DROPFLOW_STORE": str(tmp_path / "store"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def submit(name: str, factor: int, *more: str) -> dict[str, Any]:
        graph = _graph(tmp_path / "g.graph", factor)
        more = more or ("--name", name, "--wait", "--reuse", "--random", "1", "-n", "2")
        given = ("submit", graph, *more, "--output", "json")
        done = CliRunner().invoke(
            commands, [*map(str, given)], env={"DROPFLOW_URL": url, "DROPFLOW_TOKEN": token, **store}
        )
        assert done.exit_code == 0, done.output
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    answers = [submit(name, factor) for name, factor in (("s1", 2), ("s2", 2))]
    same, changed = (submit("", factor, "--dry-run") for factor in (2, 3))
    answers.append(submit("s3", 3))

    assert (same["runs"], same["waits"], same["reused"]) == (0, 0, 3)
    assert (changed["runs"], changed["waits"], changed["reused"]) == (1, 1, 1)
    assert changed["nodes"][1]["reasons"] == ["function `Twice`: line 2 changed: return 3 * input"]
    assert [(one["computed"], one["reused"]) for one in answers] == [(3, 0), (0, 3), (2, 1)]
    with Client(url, token=token) as client:
        shows = next(drop.oid for drop in client.drops("s2").drops if drop.name == "Show")
        assert any("reused: from session s1" in line for line in client.drop("s2", shows).reasons)
        submit("s4", 2, "--name", "s4", "--wait", "--reuse")  # planned: the result is where its application is
        origins = [[result.reused[:22] for result in client.results(name).results] for name in ("s1", "s4")]
    assert origins == [[""], ["reused: from session s"]]
