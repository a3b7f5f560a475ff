"""``dropflow log``."""

import msgspec

from dropflow.api.logs import LogLine, LogPage
from dropflow.testing.fake_manager import FakeManager
from tests.cli.answers import Command


def test_the_log_is_printed_unchanged(ask: Command, manager: FakeManager) -> None:
    """Standard output has the bytes of the log and nothing else."""
    wanted = b"".join(manager.log("failed", "fan_a_0-0").chunks)

    assert ask("log", "failed", "fan_a_0-0").out == wanted


def _lines(*texts: str, level: str = "INFO", drop: str = "fan_a_0-0", node: str = "node-1") -> list[LogLine]:
    return [
        LogLine(time=1_800_000_000.5 + place, node=node, drop=drop, name="app", level=level, text=text, at=0)
        for place, text in enumerate(texts)
    ]


def test_the_log_of_a_session_has_time_level_node_and_drop(ask: Command, manager: FakeManager) -> None:
    """Each line, the oldest first, in as many requests as it takes."""
    manager.print_lines("finished", _lines(*(str(number) for number in range(4_500))))
    printed = ask("log", "finished").out.decode().splitlines()

    assert printed[0] == "2027-01-15T08:00:00.500 INFO    node-1 fan_a_0-0: 0"
    assert [line.rpartition(" ")[2] for line in printed] == [str(number) for number in range(4_500)]


def test_lines_are_selected(ask: Command, manager: FakeManager) -> None:
    """By text, level, drops, node, the drop, and their number from the end."""
    manager.print_lines("finished", [*_lines("one", "two"), *_lines("three", level="ERROR", drop="fan_a_0-1")])

    def texts(*options: str) -> list[str]:
        return [line.rpartition(" ")[2] for line in ask("log", "finished", *options).out.decode().splitlines()]

    assert texts("--text", "O") == ["one", "two"]
    assert texts("--level", "warning") == ["three"]
    assert texts("--drops", "0-1") == ["three"]
    assert texts("--node", "other") == []
    assert texts("-n", "2") == ["two", "three"]
    assert texts("-n", "0") == []
    assert texts("fan_a_0-0", "-n", "5") == ["one", "two"]


def test_following_ends_with_the_session(ask: Command, manager: FakeManager) -> None:
    """What was written until the end of the session is printed; as JSON, each line is an object of its own."""
    manager.print_lines("finished", _lines("one", "two"))
    answer = ask("log", "finished", "--follow", "--output", "json")

    assert answer.status == 0
    assert [msgspec.json.decode(line)["text"] for line in answer.out.splitlines()] == ["one", "two"]


def test_an_answer_in_json_is_one_object(ask: Command, manager: FakeManager) -> None:
    """It has all lines as records, of a session or a manager; also no lines are an answer."""
    manager.print_lines("finished", _lines(*(str(number) for number in range(4_500))))
    _manager_lines(manager)
    whole = ask("log", "finished", "--output", "json").json
    last = ask("log", "finished", "--last", "2", "--output", "json").json
    none = ask("log", "finished", "--text", "nothing", "--output", "json").json
    own = ask("log", "--manager", manager.name, "--output", "json").json

    assert (whole["ok"], whole["session"], whole["missing"]) == (True, "finished", [])
    assert [record["text"] for record in whole["records"]] == [str(number) for number in range(4_500)]
    assert [record["text"] for record in last["records"]] == ["4498", "4499"]
    assert (none["ok"], none["records"]) == (True, [])
    assert (own["manager"], [record["text"] for record in own["records"]]) == (manager.name, ["listens", "slow"])


def test_an_answer_in_json_names_nodes_that_do_not_answer(ask: Command, manager: FakeManager) -> None:
    """It has the lines of the others, is not ok, and the exit status is 1."""
    page = LogPage(lines=tuple(_lines("one")), newer="a:1", missing=("far",))
    manager.session_log = lambda *_: page  # type: ignore[method-assign]
    answer = ask("log", "finished", "--output", "json")

    assert (answer.status, answer.json["ok"], answer.json["missing"]) == (1, False, ["far"])
    assert [record["text"] for record in answer.json["records"]] == ["one"]


def test_nodes_that_do_not_answer_are_named(ask: Command, manager: FakeManager) -> None:
    """The lines of the others are printed, and the exit status is 1."""
    page = LogPage(lines=tuple(_lines("one")), newer="a:1", missing=("far",))
    manager.session_log = lambda *_: page  # type: ignore[method-assign]
    answer = ask("log", "finished")

    assert answer.status == 1
    assert answer.out.decode().endswith("one\n")
    assert "far did not answer" in answer.err


def _manager_lines(manager: FakeManager) -> None:
    made = [
        LogLine(time=at, node=manager.name, drop="", name="dropflow.api", level=level, text=text, at=0)
        for at, (level, text) in enumerate((("INFO", "listens"), ("WARNING", "slow")))
    ]
    manager.print_lines(manager.name, made)


def test_the_log_of_a_manager_is_printed(ask: Command, manager: FakeManager) -> None:
    """With --manager, the lines of its own log, with the same filters; a session cannot be named as well."""
    _manager_lines(manager)
    whole = ask("log", "--manager", manager.name)

    assert whole.status == 0
    assert [line.split(" ", 1)[1] for line in whole.text.splitlines()] == [
        f"INFO    {manager.name} dropflow.api: listens",
        f"WARNING {manager.name} dropflow.api: slow",
    ]
    assert ask("log", "--manager", manager.name, "--level", "warning").text.count("\n") == 1
    assert ask("log", "--manager", manager.name, "--last", "1").text.endswith("slow\n")
    assert ask("log", "--manager", "elsewhere").status != 0
    for arguments in ((), ("finished", "--manager", manager.name)):
        refused = ask("log", *arguments)
        assert (refused.status, "give either SESSION or --manager NAME" in refused.err) == (2, True)
