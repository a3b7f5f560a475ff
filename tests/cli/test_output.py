"""The forms of output of all commands, columns for people, and the reference page."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unicodedata import category

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.session_records import FailureInfo, LogicalNodeInfo, SessionDetail
from dropflow.cli.exit_status import Exit
from dropflow.cli.graphs import graph_files
from dropflow.cli.main import commands, load_command
from dropflow.cli.output import CommandOutput, columns, output_for, shell_command
from dropflow.cli.run import RunReply
from dropflow.cli.sessions.session_end import session_failure_lines
from dropflow.cli.sessions.session_replies import SessionReply
from dropflow.execution.statistics import FailureReport
from dropflow.formatting import printable, printable_chunks
from dropflow.graph.drop_counts import DropCounts
from tests.cli.answers import Command

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


@pytest.mark.slow
def test_quiet_prints_only_errors(command: Command, broken: Path) -> None:
    """They go to standard error; standard output stays empty."""
    assert command("check", NESTED, "--output", "quiet").err == ""
    answer = command("check", broken, "--output", "quiet")

    assert (answer.status, answer.out) == (2, b"")
    assert "LG003" in answer.err


def test_the_environment_can_set_the_form_of_output(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """DROPFLOW_OUTPUT replaces --output, also for mistakes on the command line."""
    monkeypatch.setenv("DROPFLOW_OUTPUT", "json")

    assert command("check", NESTED).json["ok"] is True
    assert command("check").json["ok"] is False


@pytest.mark.parametrize("debug", [False, True])
def test_an_unexpected_exception_is_an_internal_error(
    command: Command, monkeypatch: pytest.MonkeyPatch, *, debug: bool
) -> None:
    """The message for an unexpected exception asks for a report; --debug shows the traceback."""
    monkeypatch.setattr(graph_files, "examine", lambda *_, **__: 1 // 0)
    answer = command("check", NESTED, *["--debug"] * debug)

    assert answer.status == 70
    assert "DF900: internal error: " in answer.err
    assert "please report it" in answer.err
    assert ("Traceback" in answer.err) == debug


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "dfg"])
def test_a_broken_pipe_is_no_error(tmp_path: Path, form: str) -> None:
    """Piping into ``head`` prints nothing to standard error."""
    dropflow = f"{sys.executable} -m dropflow unroll {NESTED} --set Rows.num_of_copies=2000 --format {form}"
    shell = ["bash", "-c", f"{dropflow} | head -c 9 >/dev/null; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert (done.stdout.strip(), done.stderr) == ("141", "")


@pytest.mark.slow
def test_a_closed_standard_output_is_no_internal_error() -> None:
    """The exit status is that of the command: 0, or 2 for a bad graph."""
    for arguments, status in (("--version", 0), ("check nothing.graph", 2)):
        command = f"{sys.executable} -m dropflow {arguments} >&-"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)

        assert (done.returncode, "DF900" in done.stderr) == (status, False)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [f"info {NESTED}", "--help", "--version", "run --help"])
def test_a_full_disk_behind_standard_output_is_told(arguments: str) -> None:
    """The message names standard output, and nothing else is printed when the process ends."""
    command = f"{sys.executable} -m dropflow {arguments} >/dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == Exit.FAILED
    assert done.stderr.splitlines() == [
        "error DF201: standard output cannot be written: No space left on device",
        "  make room, or write to another file",
    ]


def test_a_note_on_a_full_disk_is_lost_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error of a job or a pool is a file beside its session: a note ends neither of them."""
    with Path("/dev/full").open("w", buffering=1, encoding="utf-8") as full:
        monkeypatch.setattr("sys.stderr", full)
        CommandOutput().note("the island does not answer")
        with pytest.raises(OSError, match="No space left"):
            full.close()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["check -", "fill -", f"diff - {NESTED}"])
def test_a_closed_standard_input_is_told(arguments: str) -> None:
    """A graph that is to come from there is bad input."""
    command = f"{sys.executable} -m dropflow {arguments} <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, "standard input is closed" in done.stdout + done.stderr) == (Exit.BAD_INPUT, True)


def test_no_size_is_without_an_end(command: Command) -> None:
    """The store cannot be pruned to it: that is a mistake on the command line."""
    answer = command("cache", "prune", "--limit", "inf", "--output", "json")

    assert (answer.status, answer.json["error"]["text"]) == (Exit.BAD_INPUT, "'inf' is not a size")


def test_a_name_that_is_no_text_is_escaped(command: Command) -> None:
    """File names may be any bytes: the answer in JSON has them, and no traceback takes its place."""
    answer = command("info", "no-\udcff/g.dfg", "--output", "json")

    assert (answer.status, answer.json["error"]["code"]) == (Exit.BAD_INPUT, "DF102")
    assert answer.json["error"]["where"] == "no-\udcff/g.dfg"


# Text for people: columns and shell commands.


_WORDS = st.text(st.characters(categories=["L"]), min_size=1, max_size=8)
_HOSTILE = "a b_$(touch x)_'0'"


@pytest.mark.slow
@given(st.lists(st.tuples(_WORDS, st.integers(0, 10**9), _WORDS), min_size=1, max_size=6))
def test_columns_are_aligned(rows: list[tuple[str, int, str]]) -> None:
    """The last column begins at the same place in every line, and no value is lost."""
    lines = list(columns(rows, header=("name", "drops", "class")))
    begins = {line.rindex(last) for line, last in zip(lines, ["class", *(row[2] for row in rows)], strict=True)}

    assert len(begins) == 1
    assert [line.split()[1] for line in lines[1:]] == [f"{row[1]:,}" for row in rows]


def test_no_rows_are_no_lines() -> None:
    """An empty table has no lines."""
    assert list(columns([])) == []


@pytest.mark.parametrize("name", ["plain_a_0-1", _HOSTILE, "a;b", "~", "*", "", "a\nb"])
def test_a_name_is_one_word_for_the_shell(name: str) -> None:
    """Special characters in a name are quoted."""
    assert shlex.split(shell_command("log", "s", name)) == ["dropflow", "log", "s", name]


def test_a_name_is_not_taken_for_an_option() -> None:
    """A name that begins with a dash follows the ``--`` that ends the options."""
    assert shlex.split(shell_command("log", "s", "-o")) == ["dropflow", "log", "--", "s", "-o"]


def test_the_command_below_a_failure_quotes_the_drop() -> None:
    """It can be pasted into a shell."""
    failure = FailureInfo(drop=_HOSTILE, name="x", node="a", code="DF105", kind="", text="broken", has_log=True)
    line = next(line for line in session_failure_lines([failure], "s") if "log:" in line)

    assert shlex.split(line.partition("log:")[2]) == ["dropflow", "log", "s", _HOSTILE]


def test_a_failure_with_the_content_of_a_file_in_it_stays_short() -> None:
    """Only the beginning of the text is printed, with how much is missing."""
    failure = FailureInfo(drop="d", name="x", node="a", code="DF105", kind="", text="no file " + "1,2," * 1000)
    lines = list(session_failure_lines([failure], "s"))

    assert max(map(len, lines)) < 700
    assert "... (3,408 more characters: see the log)" in "".join(lines)


def test_failures_that_differ_in_a_number_are_printed_once(tmp_path: Path) -> None:
    """A run with 300 antennas that failed alike prints one entry: the text, one traceback, and some of the drops."""
    failures = tuple(
        FailureReport(
            drop=f"s_flag_0-{n}",
            name="Flag",
            code="DF105",
            kind="ValueError",
            text=f"ValueError: antenna {n} flagged: 18 drops",
            detail=f"Traceback\n  raise\nValueError: antenna {n} flagged",
            took_along=18,
            count=19,
            log=f"/logs/{n}.log",
        )
        for n in range(300)
    )
    reply = RunReply(
        ok=False,
        session="s",
        status="FAILED",
        drops=6000,
        states={},
        seconds=1.0,
        failures=failures,
        output=str(tmp_path),
    )
    lines = list(reply.lines())

    assert lines.count("    DF105 ValueError: antenna {n} flagged: 18 drops") == 1
    assert "  failed: Flag (s_flag_0-0) and 299 others alike, took 5,400 drops along" in lines
    assert "    log: /logs/0.log" in lines
    assert sum("Traceback" in line for line in lines) == 1
    assert len(lines) < 15


@pytest.mark.slow
@given(st.text())
def test_no_control_character_reaches_the_terminal(text: str) -> None:
    """What is printed has only line ends and tabs of them, and text without any is printed as it is."""
    shown = printable(text)

    assert all(letter in "\t\n" or category(letter) != "Cc" for letter in shown)
    assert shown == text or any(category(letter) in ("Cc", "Cf") for letter in text)


@pytest.mark.parametrize("text", ["a\r\nb\rc", "x\xe9", "1%\r2%\r"])
def test_a_log_is_printed_alike_wherever_its_chunks_end(text: str) -> None:
    """Between the two characters of a line end, in a character, or where it has only half of one at its end."""
    data = text.encode()

    for at in range(len(data)):
        assert b"".join(printable_chunks([data[:at], data[at:]])).decode() == printable(text)
        cut = printable(data[:at].decode(errors="replace"))
        assert b"".join(printable_chunks([data[:at]])).decode() == cut


def test_control_characters_of_users_are_printed_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    """Answers, errors and notes show them; a carriage return does not overwrite its line."""

    class Hostile(NamedTuple):
        ok: bool = False

        def lines(self) -> Iterator[str]:
            yield "a\x1b]0;title\x07\x9b2J\u202eb\rc"

    output = CommandOutput()
    output.answer(Hostile())
    output.error(Hostile())
    output.note("\x1b[2J")
    answered, noted = capsys.readouterr()

    assert answered == "a\\x1b]0;title\\x07\\x9b2J\\u202eb\nc\n"
    assert noted == answered + "\\x1b[2J\n"


def test_quiet_errors_are_brief(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a long answer of a command that failed, the first lines are printed, and how many there are more."""

    class Long(NamedTuple):
        ok: bool = False

        def lines(self) -> Iterator[str]:
            yield from map(str, range(80))

    output_for("quiet").answer(Long())

    assert capsys.readouterr() == (
        "",
        "".join(f"{n}\n" for n in range(8)) + "... and 72 more lines with --output table\n",
    )


def test_status_counts_what_runs_and_what_is_queued_as_pages_do() -> None:
    """Drops in the state WRITING are running, queued, or data that is written."""
    node = LogicalNodeInfo(
        key="k",
        name="Grid",
        category="",
        is_app=True,
        artificial=False,
        drops=9,
        states={"WRITING": 6, "COMPLETED": 3},
        order=0,
        counts=DropCounts(running=2, queued=3, waiting=1, completed=3),
    )
    detail = SessionDetail(
        session="s",
        graph="g",
        status="RUNNING",
        drops=9,
        settled=3,
        states={"WRITING": 6, "COMPLETED": 3},
        counts=node.counts,
        logical=(node,),
    )
    lines = "\n".join(SessionReply.of(detail, manager="http://h").lines())

    assert "2 RUNNING, 3 QUEUED, 1 WRITING, 3 COMPLETED" in lines
    assert lines.count("WRITING") == 2


# Every command and option has a help text.


@pytest.mark.parametrize("name", commands.commands)
def test_every_command_and_option_has_help(name: str) -> None:
    """Each command and each of its options has a help text."""
    command = load_command(name)
    options = [option for option in command.params if isinstance(option, click.Option)]

    assert command.help
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", commands.commands)
def test_the_list_of_commands_has_the_first_sentence_of_their_help(name: str) -> None:
    """`dropflow --help` lists the commands without importing them; the summaries in its table must be right."""
    command = load_command(name)

    assert command.name == name
    assert command.get_short_help_str(200) == commands.commands[name].get_short_help_str(200)
