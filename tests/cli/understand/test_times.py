"""``dropflow times``, and files that commands write."""

import errno
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dropflow.api.node_records import Load, NodeInfo
from dropflow.cli.output import output_file
from dropflow.cli.understand.times import TimesReply
from dropflow.errors import BadFileError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import load, save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind
from dropflow.times.attempts import attempts_of
from dropflow.times.octets import RECORD, TimesSection
from dropflow.times.statistics import NodeTraffic
from dropflow.times.timeline import analyse, statistics_of
from managers.manager_server import Service
from managers.node.manager import NodeManager
from tests.cli.answers import Command
from tests.cli.conftest import TOKEN
from tests.fake_manager import FakeManager
from tests.regular_graphs import fan
from tests.times.made_times import sections_of
from translator.plan.machines import equal_machines
from translator.plan.measured import MeasuredNode, measured_seconds, read_profile, with_measured_nodes, write_profile
from translator.plan.move_bound import judge

NESTED = Path(__file__).resolve().parents[3] / "examples" / "nested-scatter-gather.graph"


def test_a_run_has_times(command: Command, tmp_path: Path) -> None:
    """Attempts of all logical nodes and of all workers add up, and the critical path fills the time of the run."""
    command("run", NESTED, "--keep", tmp_path / "run", "--runner", "inline")
    found = command("times", tmp_path / "run", "--output", "json", "--slowest", "2").json["statistics"]

    assert found["attempts"] == sum(node["attempts"] for node in found["templates"]) > 0
    assert found["attempts"] == sum(lane["attempts"] for lane in found["lanes"])
    assert len(found["slowest"]) == 2
    assert 0 < found["critical_ran"] + found["critical_waited"] <= found["ended"] - found["began"]
    assert "critical path:" in command("times", tmp_path / "run").text


def test_the_slowest_attempts_have_their_nodes() -> None:
    """Where each ran is in the records; the table has the column if several nodes ran attempts."""
    several = statistics_of(analyse(fan(4), attempts_of(sections_of([[{"drop": 0}], [{"drop": 1, "ran": 2}]]))))
    alone = statistics_of(analyse(fan(4), attempts_of(sections_of([[{"drop": 0}]]))))

    assert [one.node for one in several.slowest] == ["n1", "n0"]
    headers = []
    for statistics in (several, alone):
        lines = list(TimesReply(run="s", statistics=statistics).lines())
        headers.append(lines[lines.index("slowest attempts:") + 1].split())
    assert headers == [["node", "drop", "on", "attempt", "ran", "waited"], ["node", "drop", "attempt", "ran", "waited"]]


def test_moved_bytes_that_are_not_counted_are_named() -> None:
    """What these nodes received is not in the sums, which are shown above."""
    found = analyse(fan(4), attempts_of(sections_of([[{"drop": 0}]])))
    traffic = (NodeTraffic(source="n1", target="n0", contents=1, size=7),)
    statistics = statistics_of(found, traffic=traffic, uncounted=("n1", "n2"))
    lines = list(TimesReply(run="s", statistics=statistics).lines())

    sums = lines.index("these sums are incomplete: transfers to n1, n2 are not known")
    (moved,) = (at for at, line in enumerate(lines) if line.startswith("moved between nodes: 7"))
    assert moved < sums < lines.index("workers:")


def test_several_sessions_are_refused(command: Command) -> None:
    """Only directories of one session are read together."""
    answer = command("times", "one", "two")

    assert answer.status != 0
    assert "2 sessions are named" in answer.err


@pytest.mark.slow
def test_directories_of_two_sessions_are_refused(command: Command, tmp_path: Path) -> None:
    """The error names the directory whose attempts do not fit."""
    small = Path(__file__).resolve().parents[3] / "examples" / "hello.graph"
    command("run", small, "--keep", tmp_path / "small", "--runner", "inline")
    command("run", NESTED, "--keep", tmp_path / "large", "--runner", "inline")
    answer = command("times", tmp_path / "small", tmp_path / "large")

    assert answer.status != 0
    assert "large: these directories are not of one session" in answer.err


@pytest.mark.slow
def test_the_timeline_of_a_run_is_written(command: Command, tmp_path: Path) -> None:
    """The trace has an event for each attempt, those of one thread do not overlap, and the picture has their boxes."""
    command("run", NESTED, "--keep", tmp_path / "run", "--runner", "threads")
    files = tmp_path / "trace.json", tmp_path / "picture.svg"
    command("times", tmp_path / "run", "--format", "trace", "-o", files[0])
    answer = command("times", tmp_path / "run", "-o", files[1], "--output", "json").json
    attempts = msgspec.json.decode(command("times", tmp_path / "run", "--format", "json").out)["statistics"]["attempts"]
    spans = [one for one in msgspec.json.decode(files[0].read_bytes())["traceEvents"] if one["ph"] == "X"]

    assert attempts == len(spans) == files[1].read_text().count("<rect")
    assert (answer["form"], answer["size"]) == ("svg", files[1].stat().st_size)
    for lane in {(span["pid"], span["tid"]) for span in spans}:
        mine = sorted((span["ts"], span["ts"] + span["dur"]) for span in spans if (span["pid"], span["tid"]) == lane)
        assert all(before[1] <= after[0] + 1e-3 for before, after in pairwise(mine))


def test_unknown_forms_of_files_are_refused(command: Command, tmp_path: Path) -> None:
    """The error lists the endings that are known."""
    answer = command("times", tmp_path, "-o", tmp_path / "x.txt")

    assert answer.status != 0
    assert "end it with .svg, .html, .htm, .json, .npz" in answer.err


_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.slow
def test_a_run_has_a_report(command: Command, tmp_path: Path) -> None:
    """The report of a directory has its failures, and says how it ended."""
    command("run", _EXAMPLES / "error-threshold.graph", "--keep", tmp_path / "run", "--runner", "inline")
    answer = command("times", tmp_path / "run", "-o", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()

    assert "html of run, which is finished" in answer.text
    assert "target 3 is below the horizon" in page
    assert "2 failed, 2 taken along" in page


def test_a_session_has_a_report(ask: Command, tmp_path: Path) -> None:
    """The report of a session of a manager is the same kind of file."""
    answer = ask("times", "failed", "-o", tmp_path / "x.html", "--output", "json")

    assert answer.json["size"] == (tmp_path / "x.html").stat().st_size
    assert "no value 1" in (tmp_path / "x.html").read_text()


def test_bad_runs_and_files_are_refused(command: Command, tmp_path: Path) -> None:
    """A directory without a run, one where nothing has run, another form, and a place that cannot be written."""
    assert "there is no such directory" in command("times", f"{tmp_path}/none", "--format", "html").err
    assert "end it with .svg, .html" in command("times", f"{tmp_path}/none", "-o", "x.pdf").err
    command("run", _EXAMPLES / "hello.graph", "--keep", tmp_path / "run", "--runner", "inline")
    assert "no such directory" in command("times", tmp_path / "run", "-o", f"{tmp_path}/no/x.html").err
    (tmp_path / "run/journal.dfj").unlink()
    answer = command("times", tmp_path / "run", "--format", "html")
    assert (answer.status, "nothing has run" in answer.err) == (2, True)


def test_a_file_that_cannot_be_written_whole_stays_as_it_is(tmp_path: Path) -> None:
    """On a full disk the earlier report is kept, nothing is left beside it, and the error names the file."""
    report = tmp_path / "day.html"
    report.write_text("earlier")

    def write_half() -> None:
        with output_file(report) as stream:
            stream.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BadFileError, match="No space left on device") as caught:
        write_half()

    assert (caught.value.where, caught.value.hint) == (str(report), "make room, or name another file")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("day.html", "earlier")]


# ``dropflow times``.


def test_a_directory_without_a_run_is_named(command: Command, tmp_path: Path) -> None:
    """The error names the directory."""
    answer = command("times", tmp_path)

    assert answer.status != 0
    assert str(tmp_path) in answer.err


def sections(graph: PhysicalGraph) -> list[TimesSection]:
    """Return what two nodes have recorded, every application twice as long as the one before; a third is silent."""
    apps = np.flatnonzero(graph.kinds[graph.template] == Kind.APP)
    records = np.zeros(len(apps), RECORD)
    records["drop"], records["attempt"], records["ran"] = apps, 1, 2.0 ** np.arange(len(apps))
    records["processor"], records["memory"] = records["ran"] / 2, 1e6 * (1 + np.arange(len(apps)))
    half = len(apps) // 2
    return [
        TimesSection(node="node-1", total=half, records=records[:half]),
        TimesSection(node="node-2", total=len(apps) - half, records=records[half:]),
        TimesSection(node="node-3", records=records[:0], missing="silent for 20 s"),
    ]


@pytest.mark.slow
def test_a_session_has_the_measurements_of_its_nodes(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """The managers merge what their nodes have recorded; a node that did not answer is told by name."""
    graph = fan(12)
    manager.add(graph, "s")
    manager.set_times("s", sections(graph))
    answer = ask("times", "s", "--output", "json").json["statistics"]
    written = ask("times", "s", "-o", tmp_path / "s.npz")

    assert (answer["attempts"], answer["templates"][0]["seconds"]) == (6, 63.0)
    assert "node node-3 did not answer: its attempts are missing" in ask("times", "s").text
    assert "node node-3 did not answer: its attempts are missing (silent for 20 s)" in written.err


@pytest.mark.slow
def test_plans_use_the_profile_of_a_session(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """The longest application, of half of all work, gets a node for itself; a session that is not known is an error."""
    graph = fan(12)
    manager.add(graph, "s")
    manager.set_times("s", sections(graph))
    save(graph, tmp_path / "g.dfg")
    for name in ("node-1", "node-2"):
        manager.set_node(NodeInfo(name=name, load=Load(cores=1, workers=1)))
    planned = ask("partition", tmp_path / "g.dfg", "-k", 2, "--profile", "s", "--output", "json")
    sent = ask("submit", tmp_path / "g.dfg", "--profile", "s", "--name", "again", "--output", "json")
    unknown = ask("partition", tmp_path / "g.dfg", "-k", 2, "--profile", "nothing")

    assert planned.json["makespan_s"] == pytest.approx(32.0)
    assert sorted(np.bincount(manager.graph("again").part[1:7]).tolist()) == [1, 5]
    assert sent.status == 0
    assert unknown.status != 0
    assert "nothing" in unknown.err


@pytest.mark.slow
def test_profiles_are_written_and_merged(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """A file has the mean of each instance, over a session and an earlier file, and plans take it."""
    graph = fan(12)
    manager.add(graph, "s")
    manager.set_times("s", sections(graph))
    save(graph, tmp_path / "g.dfg")
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    usage = {"processor": np.array([6.0]), "memory": np.array([5e6])}
    usage |= {"least": np.array([1.5]), "most": np.array([4.0])}
    first = MeasuredNode("a", Kind.APP, (6,), np.arange(1), np.array([3.0]), np.array([3.0]), **usage)
    with one.open("wb") as stream:
        write_profile([first], stream)
    ask("times", "s", "-o", two, "--with", one)
    (apps,) = (node for node in read_profile(two) if node.kind is Kind.APP)
    answer = ask("partition", tmp_path / "g.dfg", "-k", 1, "--profile", two, "--output", "json")
    (shown, _) = ask("times", two, "--output", "json").json["nodes"]

    assert (apps.processor[:2].tolist(), apps.memory[:2].tolist()) == ([4.625, 1.0], [5e6, 2e6])
    assert (shown["key"], shown["measurements"], shown["memory"]) == ("a", 9, 6e6)
    assert "6.0 MB" in ask("times", two).text
    assert (apps.mean.tolist(), apps.count.tolist()) == ([2.5, 2, 4, 8, 16, 32], [4, 1, 1, 1, 1, 1])
    assert (apps.least.tolist(), apps.most.tolist()) == ([1, 2, 4, 8, 16, 32], [4, 2, 4, 8, 16, 32])
    assert answer.json["makespan_s"] == 64.5


def test_the_range_of_an_instance_needs_two_measurements_of_it() -> None:
    """One does not tell how far the next differs: the instance has the range of its node. Without any all is NaN."""
    graph = fan(6)
    row = next(row for row, one in enumerate(graph.templates) if one.kind is Kind.APP)
    node, count = graph.templates[row], int((graph.template == row).sum())
    values = np.arange(1.0, count + 1)
    measured = MeasuredNode(
        key=node.key,
        kind=Kind.APP,
        shape=node.shape,
        instance=np.arange(count),
        mean=values,
        count=np.where(values == 2, 3.0, 1.0),
        processor=np.full(count, np.nan),
        memory=np.full(count, np.nan),
        least=values * 0.5,
        most=values * 2,
    )
    found = measured_seconds(graph, [measured])
    drops = np.flatnonzero(graph.template == row)

    assert found.mean[drops].tolist() == values.tolist()
    assert found.least[drops].tolist() == [0.5, 1.0, *[0.5] * (count - 2)]
    assert found.most[drops].tolist() == [2.0 * count, 4.0, *[2.0 * count] * (count - 2)]
    assert np.isnan(found.mean[graph.template != row]).all()


def test_profiles_of_earlier_versions_are_read(command: Command, tmp_path: Path) -> None:
    """A file without processor time and memory has unknown ones; merging it with a new one keeps those of that."""
    unknown, known = np.array([np.nan]), {"processor": np.array([2.0]), "memory": np.array([7.0])}
    known |= {"least": np.array([2.0]), "most": np.array([4.0])}
    columns = (np.arange(1), np.array([3.0]), np.array([1.0]))
    with (tmp_path / "new.npz").open("wb") as stream:
        write_profile([MeasuredNode("a", Kind.APP, (1,), *columns, **known)], stream)
    with np.load(tmp_path / "new.npz") as found:
        np.savez(tmp_path / "old.npz", **{name: found[name] for name in ("header", "instance", "mean", "count")})
    (old,) = read_profile(tmp_path / "old.npz")
    command("times", tmp_path / "old.npz", "--with", tmp_path / "new.npz", "-o", tmp_path / "both.npz")
    (both,) = read_profile(tmp_path / "both.npz")
    shown = command("times", tmp_path / "old.npz", "--output", "json").json["nodes"][0]

    np.testing.assert_array_equal([old.processor, old.memory], [unknown, unknown])
    assert (both.count, both.mean, both.processor, both.memory) == (2, 3, 2, 7)
    assert (old.least, old.most, both.least, both.most) == (3, 3, 2, 4)
    assert (shown["processor"], shown["memory"], shown["mean"]) == (None, None, 3.0)
    assert command("times", tmp_path / "old.npz", "--format", "svg").status == 2


def test_merging_needs_a_file(ask: Command) -> None:
    """Measurements are merged into a file, which has to be named."""
    answer = ask("times", "finished", "--with", "failed")

    assert answer.status == 2
    assert "-o FILE" in answer.err


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 damaged"])
def test_what_is_not_a_profile_is_bad_input(command: Command, tmp_path: Path, content: bytes) -> None:
    """The error names the file, and how to make one."""
    (tmp_path / "p.npz").write_bytes(content)
    answer = command("partition", NESTED, "-k", 2, "--profile", tmp_path / "p.npz")

    assert answer.status == 2
    assert "p.npz" in answer.err
    assert "dropflow times RUN -o FILE" in answer.err


@pytest.mark.slow
def test_plan_run_and_plan_again(command: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session on a node manager took, read over REST, makes the second plan faster on unequal work."""
    del home
    builder = GraphBuilder("unequal")
    for number in range(8):
        arguments = (Argument(name="sleep_time", value=0.2 if number < 4 else 0.01, type="Float"),)
        builder.app(f"A{number}", component="dlg.apps.simple.SleepApp", arguments=arguments).data(f"d{number}")
        builder.connect(f"A{number}", f"d{number}")
    graph, file = builder.build(), tmp_path / "g.dfg"
    save(graph, file)
    node = NodeManager("a", root=tmp_path / "node", runner="threads", workers=8)
    with closing(node), closing(Service(node, token=TOKEN)) as service:
        service.start()
        monkeypatch.setenv("DROPFLOW_URL", service.url)
        monkeypatch.setenv("DROPFLOW_TOKEN", TOKEN)
        assert command("submit", file, "--name", "first", "--wait").status == 0
        command("partition", file, "-k", 2, "-a", "blocks", "-o", tmp_path / "before.dfg")
        command("partition", file, "-k", 2, "-a", "blocks", "--profile", "first", "-o", tmp_path / "after.dfg")
        command("times", "first", "-o", tmp_path / "p.npz")
        assert command("submit", file, "--profile", "first", "--name", "second", "--wait").status == 0
    real = with_measured_nodes(graph, read_profile(tmp_path / "p.npz"))
    before, after = (
        judge(real, equal_machines(2), part=made.part, priority=made.priority).makespan_s
        for made in (load(tmp_path / "before.dfg"), load(tmp_path / "after.dfg"))
    )

    assert after < 0.75 * before
