"""Shell commands as applications, values in them, and MPI jobs."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.apps import mpi
from dropflow.apps.mpi import MPIApp
from dropflow.apps.ranks import Job
from dropflow.apps.shell_quote import Replacement, substitute
from dropflow.errors import AppError, BadGraphError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import TWO_PORTS, Argument, Kind, Template
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.states import SessionState
from dropflow.testing.attempts import FAILED, Attempted, Given, Wanted, try_app
from tests.apps.mpi_jobs import COMMAND, job
from tests.translator.drawing import Drawing
from translator.logical import Field
from translator.options import PartitionOptions
from translator.pipeline import translate
from translator.plan.registry import partition

BASH = "dlg.apps.bash_shell_app.BashShellApp"
FILE = "dlg.data.drops.file.FileDROP"


def argument(name: str, value: Any, **more: Any) -> Argument:
    """An application argument."""
    return Argument(name=name, value=value, parameter_type="ApplicationArgument", **more)


def run(
    directory: Path, command: str, *fields: Argument, inputs: Any = (), outputs: Any = ("out",), **more: Any
) -> Attempted:
    """Run `command`; inputs are pairs of a port and a content, or `Given`."""
    given = [each if isinstance(each, Given) else Given(*each) for each in inputs]
    arguments = (Argument(name="command", value=command), *fields)
    return try_app(more.get("component", BASH), directory, inputs=given, outputs=outputs, fields=arguments)


def test_placeholders_are_replaced_by_inputs_fields_and_outputs(tmp_path: Path) -> None:
    """Data in memory appear as text, fields as their values, an output as a path whose content becomes the drop's."""
    got = run(tmp_path, "echo {a} {b} {n} > {out}", argument("n", 7), inputs=[("a", "text"), ("b", 2.5)])

    assert got.contents == [b"text 2.5 7\n"]


@pytest.mark.parametrize("persist", [False, True])
def test_persisted_memory_appears_as_text(tmp_path: Path, persist: bool) -> None:  # noqa: FBT001 - both ways
    """Whether a memory drop is kept as a result does not change what a command or a text port gets."""
    drawing = Drawing().data("m", pydata=[2.5, 1], persist=persist)
    drawing.app(
        "b",
        "BashShellApp",
        dropclass=BASH,
        command="echo {t} > %o0",
        t=Field(id="t", name="t", usage="InputPort", encoding="utf-8"),
    )
    drawing.data("f", "File").link("m", "b", ports=("", "t")).link("b", "f")
    result = local_run.run(
        translate(drawing.graph()).graph, local_run.prepare_directory(tmp_path), RunOptions(runner="inline")
    )

    assert result.status is SessionState.FINISHED
    assert [file.read_text() for file in (tmp_path / "files").iterdir()] == ["[2.5, 1]\n"]


def test_files_appear_as_paths(tmp_path: Path) -> None:
    """A file or a directory appears in a command as its quoted path."""
    file = tmp_path / "a file"
    file.write_text("content")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "x").touch()

    got = run(tmp_path, "cat {f} > {out}; ls {d} >> {out}", inputs=[("f", file), ("d", tmp_path / "dir")])

    assert got.contents == [b"contentx\n"]


def test_encodings_of_ports_have_priority(tmp_path: Path) -> None:
    """With path encoding memory appears as a file; with utf-8 a file appears as its text; with dataurl as a URL."""
    file = tmp_path / "f"
    file.write_text("inside")
    ports = [Argument(name=name, usage="InputPort", encoding=name) for name in ("path", "utf-8", "dataurl")]

    got = run(
        tmp_path,
        "cat {path} > {out}; echo {utf-8} {dataurl} >> {out}",
        *ports,
        inputs=[("path", b"bytes\n"), ("utf-8", file), ("dataurl", file)],
    )

    assert got.contents == [f"bytes\ninside {file.as_uri()}\n".encode()]


def test_all_inputs_of_a_port_are_filled_in(tmp_path: Path) -> None:
    """All inputs of a port are filled in, in order; those that failed are left out."""
    got = run(tmp_path, "printf '<%s>' {x} > {out}", inputs=[("x", "a b"), ("x", FAILED), ("x", "c")])

    assert got.contents == [b"<a b><c>"]


def test_inputs_of_the_same_name_have_files_of_their_own(tmp_path: Path) -> None:
    """The data of a scatter have one name: a command that gets them by path reads each of them."""
    port = Argument(name="x", usage="InputPort", encoding="path")
    got = run(tmp_path, "cat {x} > {out}", port, inputs=[Given("x", b"first,", "tile"), Given("x", b"second", "tile")])

    assert got.contents == [b"first,second"]


@pytest.mark.parametrize("other", ["", "parts"])
def test_a_command_that_names_a_port_without_inputs_fails_if_others_are_not_read(tmp_path: Path, other: str) -> None:
    """An edge ends at no port, or at a port of the gather with another name: the command would run without the data."""
    port = Argument(name="x", usage="InputPort")
    got = run(tmp_path, "cat {x} > {out}", port, Argument(name=other or "n"), inputs=[(other, "a")])

    assert "no input comes in at the port 'x'" in got.failure.text


def test_a_port_without_inputs_is_empty_if_the_command_reads_all_inputs(tmp_path: Path) -> None:
    """A port may have no edge: others are read by name or place, or are ports of the application."""
    port, other = Argument(name="x", usage="InputPort"), Argument(name="y", usage="InputPort")

    assert run(tmp_path, "echo {x} {y} > {out}", port, inputs=[("y", "a")]).contents == [b"a\n"]
    assert run(tmp_path, "echo {x} > {out}", port, other, inputs=[("y", "a")]).contents == [b"\n"]
    assert run(tmp_path, "echo {x} $(cat %i0) > {out}", port, inputs=[("", "a")]).contents == [b"a\n"]


def test_a_command_that_names_a_failed_input_does_not_run(tmp_path: Path) -> None:
    """The attempt fails before the command starts."""
    assert "input 'x': the only input failed" in run(tmp_path, "echo {x}", inputs=[("x", FAILED)]).failure.text


def test_values_cannot_inject_commands(tmp_path: Path) -> None:
    """Neither data nor fields can add commands to the command line."""
    got = run(tmp_path, 'echo {a} "{b}" > {out}', argument("b", "$(touch evil)"), inputs=[("a", "; touch evil")])

    assert got.contents == [b"; touch evil $(touch evil)\n"]


def test_shell_braces_are_not_placeholders(tmp_path: Path) -> None:
    """Brace expansion, variables and awk programs are not placeholders."""
    got = run(tmp_path, "V=v; echo {a,b} ${V} | awk '{print $3}' > {out}; echo {nothing} >> {out}")

    assert got.contents == [b"v\n{nothing}\n"]


def test_documented_placeholder_forms_work(tmp_path: Path) -> None:
    """%i0 and %o0 count inputs and outputs; brackets name them by id, name or the id of their node."""
    inputs = [Given("", b"1", oid="g_k-5_0"), Given("", b"2", name="second"), Given("", b"3", oid="g_12_0-3")]

    got = run(tmp_path, "cat %i0 %i[second] %i[12] %i[-5] > %o0", inputs=inputs, outputs=[""])

    assert got.contents == [b"1231"]


def test_placeholders_for_data_urls_and_drop_ids_work(tmp_path: Path) -> None:
    """%iDataURL0 is replaced by a URL, and the id of a drop in braces by its path."""
    file = tmp_path / "x"
    file.write_text("content")

    got = run(tmp_path, "echo %iDataURL0 > {out}; cat {in/1} >> {out}", inputs=[Given("", file, oid="in/1")])

    assert got.contents == [f"{file.as_uri()}\ncontent".encode()]


def test_placeholders_without_an_input_stay_with_a_warning(tmp_path: Path) -> None:
    """A number without an input stays in the command, with a warning in the log."""
    got = run(tmp_path, "echo %i3 > {out}")

    assert got.contents == [b"%i3\n"]
    assert "%i3 in the command is not an input" in got.log


def test_an_unknown_key_means_the_only_input(tmp_path: Path) -> None:
    """A key that names no drop means the only one; if there are several, it is not replaced."""
    one = run(tmp_path, "cat %i[-5] > %o[-9]", inputs=[("x", b"1")])
    two = run(tmp_path, "cat %i[-5] > %o[-9]", inputs=[Given("x", b"1", name="a"), Given("y", b"2", name="b")])

    assert one.contents == [b"1"]
    assert "taken for the only input" in one.log
    assert "%i[-5] in the command is not an input" in two.failure.text
    assert "a, b" in two.failure.hint


def test_an_output_that_is_not_written_is_empty_with_a_warning(tmp_path: Path) -> None:
    """The log names the port and the path; an output that the command does not name, or has made empty, is silent."""
    got = run(tmp_path, ": {out}; touch {made}", outputs=("out", "made", "other"))

    assert got.contents == [b"", b"", b""]
    path = re.search(r"nothing was written to the output 'out', which is empty: (\S+)", got.log)
    assert path
    assert f": {path[1]};" in got.log
    assert got.log.count("nothing was written") == 1


def test_blank_fields_add_no_argument(tmp_path: Path) -> None:
    """A blank or False field adds no argument; a precious field adds an empty one."""
    fields = (argument("a", ""), argument("b", False, type="Boolean"), argument("c", "", precious=True))

    assert run(tmp_path, "printf '<%s>' {a} {b} {c} end > {out}", *fields).contents == [b"<><end>"]


def test_a_status_other_than_0_fails(tmp_path: Path) -> None:
    """The failure has the status, the command, and the end of what it printed."""
    failure = run(tmp_path, "echo going wrong >&2; exit 3").failure

    assert "status 3: echo going wrong" in failure.text
    assert "going wrong" in failure.detail
    assert failure.retryable


@pytest.mark.parametrize(
    ("command", "words"), [("kill -9 $$", "signal SIGKILL"), ("nocommandofthatname", "status 127 (command not found)")]
)
def test_exit_statuses_are_explained(tmp_path: Path, command: str, words: str) -> None:
    """The failure explains signals and the statuses that a shell uses."""
    assert words in run(tmp_path, command).failure.text


def test_a_node_without_a_command_is_refused(tmp_path: Path) -> None:
    """A blank command is an error of the node."""
    assert "the node 'the app' has no command" in run(tmp_path, "  ").failure.text


@pytest.mark.slow
def test_a_value_too_large_for_a_command_is_refused(tmp_path: Path) -> None:
    """A value that exceeds the limit of a command line is refused with an alternative."""
    failure = run(tmp_path, "echo {x}", inputs=[("x", "x" * 200_000)]).failure

    assert "the limit is 131071" in failure.text
    assert "path" in failure.hint


def test_binary_data_cannot_be_in_a_command(tmp_path: Path) -> None:
    """Bytes that are not text are an error with a hint."""
    assert "is not text" in run(tmp_path, "echo {x}", inputs=[("x", b"\xff\xfe")]).failure.text


def test_numbered_arguments_are_joined(tmp_path: Path) -> None:
    """The numbered arguments of older graphs are joined, placeholders included."""
    fields = (Argument(name="Arg02", value="hello > %o[out0]"), Argument(name="Arg01", value="echo"))

    assert run(tmp_path, "", *fields, outputs=["data"]).contents == [b"hello\n"]


def test_placeholders_are_replaced_in_all_parts_of_a_command(tmp_path: Path) -> None:
    """`%i0`, `%o0` and `{port}` mean the data in command, Arguments, ArgNN and in arguments that become part of it."""
    file = tmp_path / "a file"
    file.write_text("content")
    ports = (Argument(name="in", usage="InputPort"), Argument(name="out", usage="OutputPort"))
    joined = (Argument(name="argumentPrefix", value=" "), Argument(name="paramValueSeparator", value="="))
    for command, fields in (
        ("dd status=none", (Argument(name="Arguments", value="if=%i0 of=%o0"),)),
        ("dd status=none", (Argument(name="command_line_arguments", value="if={in} of={out}"),)),
        ("dd status=none", (Argument(name="Arg01", value="if=%i[in]"), Argument(name="Arg02", value="of=%o[out]"))),
        ("dd status=none", (argument("if", "%i0"), argument("of", "%o0"), *joined)),
        ("dd status=none", (argument("if", "{in}"), argument("of", "{out}"), *joined)),
        ("dd status=none", (argument("operands", "if=%i0 of=%o0", positional=True),)),
        ("dd status=none {operands}", (argument("operands", "if=%i0 of=%o0"),)),
        ('dd status=none "{source}" of={out}', (argument("source", "if=%i0"),)),
        ("dd status=none {Arguments}", (Argument(name="Arguments", value="if=%i0 of=%o0"),)),
    ):
        assert run(tmp_path, command, *ports, *fields, inputs=[("in", file)]).contents == [b"content"], command


@pytest.mark.parametrize("place", ["{v}", '"{v}"', "'{v}'", "$(printf '%s' {v})", "appended"])
@pytest.mark.parametrize(
    "value",
    ["a; touch DONE; echo %i0", "$(touch DONE) %i0", "`touch DONE`{in}", "100%i9; touch DONE", "%i0' ; touch DONE '"],
)
def test_a_value_that_mentions_data_is_not_executed(place: str, value: str, tmp_path: Path) -> None:
    """Placeholders in the value of a field are replaced by data; the rest stays text in all kinds of quoting."""
    ports = (Argument(name="in", usage="InputPort"), Argument(name="out", usage="OutputPort"))
    field = argument("v", value, positional=place == "appended")
    command = "printf '%s' " + (place if place != "appended" else "")
    got = run(tmp_path, command, *ports, field, inputs=[("in", "data")])

    assert got.result.failure is None
    assert not list(tmp_path.rglob("DONE"))


def test_a_port_that_an_argument_mentions_is_not_appended(tmp_path: Path) -> None:
    """The arguments of dd name its files: the ports, which are application arguments too, are not added again."""
    file = tmp_path / "a file"
    file.write_text("content")
    ports = (argument("in", "", usage="InputPort"), argument("out", "", usage="OutputPort"))
    joined = (Argument(name="argumentPrefix", value=" "), Argument(name="paramValueSeparator", value="="))
    got = run(
        tmp_path,
        "dd status=none",
        *ports,
        argument("if", "%i0"),
        argument("of", "%o0"),
        *joined,
        inputs=[("in", file)],
    )

    assert got.contents == [b"content"]


def test_placeholders_in_data_and_values_are_not_replaced(tmp_path: Path) -> None:
    """A content or a plain value that looks like a placeholder is used unchanged."""
    ports = (Argument(name="in", usage="InputPort"), Argument(name="out", usage="OutputPort"))
    held = "%i0 {out} $(echo no) {n}"

    got = run(
        tmp_path,
        "echo {in} {words} {n} > {out}",
        *ports,
        argument("words", "{in}"),
        argument("n", "{m} %z"),
        inputs=[("in", held)],
    )

    assert got.contents == [f"{held} {held} {{m}} %z\n".encode()]


def test_redirections_set_standard_input_and_output(tmp_path: Path) -> None:
    """input_redirection and output_redirection say where standard input and output go."""
    fields = (Argument(name="input_redirection", value="%i0"), Argument(name="output_redirection", value="> %o0"))

    assert run(tmp_path, "tr a-z A-Z", *fields, inputs=[("", b"abc")]).contents == [b"ABC"]


def test_arguments_are_appended_to_a_command_without_placeholders(tmp_path: Path) -> None:
    """For older nodes, whose command has no placeholders, arguments are appended in the declared style."""
    source = tmp_path / "source"
    source.write_bytes(bytes(range(200)))
    style = (Argument(name="argumentPrefix", value=" "), Argument(name="paramValueSeparator", value="="))
    fields = (argument("bs", 10), argument("count", 3), argument("status", "none"), argument("skip", ""))

    got = run(tmp_path, "dd", *style, *fields, inputs=[("if", source)], outputs=["of"])

    assert got.contents == [bytes(range(30))]


def test_argument_prefixes_and_positions_are_applied(tmp_path: Path) -> None:
    """With two dashes, names of one letter get one; positional arguments come last, without names."""
    fields = (
        Argument(name="argumentPrefix", value="--"),
        argument("file", "a b", positional=True),
        argument("n", 3),
        argument("long", "x"),
    )

    assert "$ echo -n 3 --long x 'a b'" in run(tmp_path, "echo", *fields, outputs=()).log


def test_a_command_with_placeholders_gets_nothing_appended(tmp_path: Path) -> None:
    """If a command has one placeholder, no arguments are appended."""
    fields = (Argument(name="argumentPrefix", value="--"), argument("x", 1), argument("y", 2))

    assert "$ echo 1\n" in run(tmp_path, "echo {x}", *fields, outputs=()).log


@pytest.mark.parametrize(
    ("name", "command", "wanted"),
    [
        ("StreamingInputBashApp", "cat > {out}", b"abc"),
        ("StreamingOutputBashApp", "echo {in}", b"abc\n"),
        ("StreamingInputOutputBashApp", "tr a-c x-z # it's fine", b"xyz"),
    ],
)
def test_streaming_kinds_use_standard_input_and_output(tmp_path: Path, name: str, command: str, wanted: bytes) -> None:
    """The streaming variants run as filters over complete data."""
    component = f"dlg.apps.bash_shell_app.{name}"

    assert run(tmp_path, command, inputs=[("in", b"abc")], component=component).contents == [wanted]


def test_every_output_gets_standard_output(tmp_path: Path) -> None:
    """With several outputs each one gets all of it."""
    component = "dlg.apps.bash_shell_app.StreamingOutputBashApp"

    got = run(tmp_path, "echo x", outputs=["a", Wanted("b", component=FILE)], component=component)

    assert got.contents == [b"x\n", b"x\n"]


def test_fields_may_use_session_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$DLG_ROOT within a field is expanded by the shell, $DLG_X alone by us; an unset one is an error."""
    monkeypatch.setenv("DLG_ROOT", "/the root")
    fields = (argument("a", "$DLG_ROOT/x"), argument("b", "$DLG_ROOT"))

    assert run(tmp_path, "echo {a} '{b}' > {out}", *fields).contents == [b"/the root/x /the root\n"]
    assert "DLG_LOST is not set" in run(tmp_path, "echo {a}", argument("a", "$DLG_LOST")).failure.text


def test_empty_data_do_not_override_a_field(tmp_path: Path) -> None:
    """A port whose data are empty keeps the value of its field; without one, it is an empty word."""
    port = Argument(name="n", value=3, type="Integer", usage="InputPort", parameter_type="ApplicationArgument")

    assert run(tmp_path, "echo {n} > {out}", port, inputs=[("n", b"")]).contents == [b"3\n"]
    assert run(tmp_path, "printf '<%s>' {x} > {out}", inputs=[("x", "")]).contents == [b"<>"]
    (tmp_path / "empty").touch()
    file = run(tmp_path, "basename {n} > {out}", port, inputs=[("n", tmp_path / "empty")])
    assert file.contents == [b"empty\n"]


# Values in shell commands.


PLACEHOLDER = re.compile(r"\{x\}")
NASTY = [
    *("it's $5", "a b", "$(echo run)", "`echo run`", '"q"', "back\\slash", "*", "new\nline", "", "'", "\\", "}", "~"),
    *("a'b\"c`d$e\\f!", ";echo run", "&& echo run", "$HOME", "${HOME}", "#", "-n", "\\'", "$'x'", "é\t|"),
]
PLACES = {
    "bare": "printf %s. {x}",
    "double": 'printf %s. "{x}"',
    "single": "printf %s. '{x}'",
    "ansi": "printf %s. $'{x}'",
    "glued": "printf %s. {x}",
    "in a subshell": "(printf %s. {x})",
    "in a substitution": 'printf %s "$(printf %s. "{x}")"',
    "bare in a substitution": 'printf %s "$(printf %s. {x})"',
    "bare in backticks": 'v=`printf %s. {x}`; printf %s "$v"',
    "double in backticks": 'v=`printf %s. "{x}"`; printf %s "$v"',
    "single in backticks": "v=`printf %s. '{x}'`; printf %s \"$v\"",
    "backticks in double": 'printf %s "`printf %s. {x}`"',
    "escaped double in backticks in double": 'printf %s "`printf %s. \\"{x}\\"`"',
    "backticks in backticks": 'v=`echo "\\`printf %s. {x}\\`"`; printf %s "$v"',
    "after an escaped quote": "printf %s. \\'{x} | tail -c +2",
    "after a comment with a quote": "# don't\nprintf %s. {x}",
    "after a word with a hash": "echo a#b > /dev/null; printf %s. '{x}'",
    "in a here-document": "cat <<END\n{x}.\nEND\n",
    "in a literal here-document": "cat <<'END'\n{x}.\nEND\n",
    "in a here-document's command": 'cat <<END\n$(printf %s. "{x}")\nEND\n',
    "after a here-document": "cat <<END > /dev/null; printf %s. '{x}'\nit's\nEND\n",
    "in a here-string": "cat <<< {x}.",
    "in a case": 'case a in b) ;; a) printf %s. "{x}";; esac',
    "in a case in a substitution": 'printf %s "$(case $HOME in b) ;; *) printf %s. {x};; esac)"',
    "after a case in a substitution": 'printf %s. "$(case a in a) ;; esac){x}"',
    "in a function": "f() { printf %s. {x}; }; f",
}


def shell_quote_run(command: str, value: str) -> str:
    """What bash prints for `command` with `value` in its place."""
    text = substitute(command, PLACEHOLDER, lambda _: Replacement((value,)))
    done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_bash_sees_the_value_itself(place: str) -> None:
    """In every place the command gets the exact value: nothing of it is expanded, split or run."""
    found = {value: shell_quote_run(PLACES[place], value).rstrip("\n") for value in NASTY}

    assert found == {value: f"{value}." for value in NASTY}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30))
def test_any_text_survives_any_place(value: str) -> None:
    """One command with the value in several kinds of quotes gives the value back from each."""
    command = "printf '%s\\0' {x} \"{x}\" '{x}' $'{x}' \"$(printf %s_ '{x}')\" `printf %s_ \"{x}\" | base64 -w0`"
    shown = shell_quote_run(command, value).split("\0")

    assert shown[:4] == [value] * 4
    assert shown[4] == f"{value}_"


@pytest.mark.parametrize(
    "command",
    ["echo ${x}", "echo {y} {a,b} {1..3}", "awk '{print $1}'", 'echo "${HOME}"', "echo \\{x}", "f() { true; }"],
)
def test_what_is_not_a_placeholder_stays(command: str) -> None:
    """Braces of the shell and of other languages are left alone."""
    assert substitute(command, PLACEHOLDER, lambda _: Replacement(("no",))) == command


def test_comments_stay() -> None:
    """A placeholder in a comment is not replaced: a value with a line break would get out of it."""
    assert substitute("true # {x}\n", PLACEHOLDER, lambda _: Replacement(("a\necho run",))) == "true # {x}\n"


def test_several_words_and_none() -> None:
    """Words are quoted one by one; no word leaves nothing."""
    assert substitute("ls {x}", PLACEHOLDER, lambda _: Replacement(("a b", "c"))) == "ls 'a b' c"
    assert substitute("ls {x}", PLACEHOLDER, lambda _: Replacement(())) == "ls "
    assert substitute("ls {x}", PLACEHOLDER, lambda _: None) == "ls {x}"


@pytest.mark.parametrize(
    "command", ["printf %s {x}", 'printf %s "{x}"', "printf %s '{x}'", "printf %s $'{x}'", "cat <<E\n{x}\nE"]
)
def test_variables_of_the_session_still_work_in_fields(command: str) -> None:
    """``$DLG_ROOT`` in a field means the variable, in every kind of quotes; other variables do not."""
    fill = Replacement(("$DLG_R/$HOME/${DLG_R}",), variables=True)
    environment = {"DLG_R": "r t", "HOME": "h", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/bash", "-c", substitute(command, PLACEHOLDER, lambda _: fill)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.rstrip("\n") == "r t/$HOME/r t"


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("cat <<-END\n\ta {x}\n\tEND\n", "\tb\nc"),
        ("cat <<END\na {x}\nEND\n", "\tb\n\tc"),
        ('printf "a %s" "${V:-{x}}"', "~&"),
        ('V=q; printf "a %s" "${V/q/{x}}"', "b/\\"),
    ],
)
def test_values_stay_where_bash_keeps_them(command: str, value: str) -> None:
    """A tab within a line of a here-document, and signs that only substitutions replace."""
    assert shell_quote_run(command, value).rstrip("\n") == f"a {value}"


def test_arithmetic_takes_numbers_only() -> None:
    """Bash evaluates arithmetic expressions, so only plain values are accepted in them."""
    assert shell_quote_run("echo $(( {x} * 2 ))", "21") == "42\n"
    assert shell_quote_run('v=abc; echo ${v:{x}:1} "${v:{x}}"', "1") == "b bc\n"
    assert shell_quote_run('v=(a b); echo ${v[{x}]} "${v:-}${v[0]:-{x}}"', "1") == "b aa\n"
    assert shell_quote_run("echo ${v:-{x}}", "a[$(echo run)]") == "a[$(echo run)]\n"
    for command in ("echo $(( {x} ))", "echo ${v:{x}}", "echo ${v: -1:{x}}", "echo ${v[{x}]}", 'echo "${#v[{x}]}"'):
        with pytest.raises(AppError, match="arithmetic"):
            shell_quote_run(command, "a[$(echo run)]")


@pytest.mark.parametrize(
    ("command", "value", "text"),
    [
        ("echo {x}", "a\0b", "null byte"),
        ("cat <<END\n{x}\nEND\n", "a\nEND\necho run", "ends the here-document"),
        ("cat <<-END\n{x}\nEND\n", "a\n\tEND\necho run", "ends the here-document"),
        ("cat <<-END\na {x}\nEND\n", "b\n\tc", "a line that begins with a tab"),
        ("cat <<-END\n\t{x}\nEND\n", "\tb", "a line that begins with a tab"),
        ('echo "${V:-{x}}"', "it's", "assign the value"),
        ('echo "${V/q/{x}}"', "a&b", "assign the value"),
        ('echo "${V[0]//q/{x}}"', "~", "assign the value"),
    ],
)
def test_values_that_cannot_be_quoted_are_refused(command: str, value: str, text: str) -> None:
    """What no quoting can protect is an error, not a guess."""
    with pytest.raises(AppError, match=re.escape(text)):
        shell_quote_run(command, value)


# MPI jobs: the ranks of a job run one command together.


def mpi_run(graph: PhysicalGraph, directory: Path, runner: str = "threads") -> tuple[SessionState, list[str]]:
    """Run a graph; return the state of the session, and the contents of its files."""
    result = local_run.run(graph, local_run.prepare_directory(directory), RunOptions(runner=runner, workers=2))
    folder = directory / "results"
    files = sorted(path for path in (directory / "files").rglob("*") if path.is_file()) + sorted(folder.iterdir())
    return result.status, [path.read_text() for path in files]


def launcher(folder: Path, text: str) -> str:
    """Write a program that stands for mpirun, and return its path."""
    program = folder / "start-ranks"
    program.write_text(f"#!{sys.executable}\n{text}")
    program.chmod(0o755)
    return str(program)


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_ranks_run_together(tmp_path: Path, runner: str) -> None:
    """Two jobs of three ranks: each rank writes its number and the number of ranks; the file has all parts in order."""
    status, contents = mpi_run(job(COMMAND, copies=2, launcher="none"), tmp_path / "run", runner)

    assert status is SessionState.FINISHED
    assert contents == ["0 of 3\n1 of 3\n2 of 3\n"] * 2


def test_what_happens_in_other_jobs_does_not_shorten_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank is woken whenever a rank of any job comes: it waits for the others of its own as long as it says."""
    job = Job(("session", "job"), lambda: ("", ""), "")

    class Busy(threading.Condition):
        """It wakes at once, until the job has ended."""

        wakes = 0

        def wait(self, timeout: float | None = None) -> bool:
            """Count, and end the job."""
            del timeout
            self.wakes += 1
            job.outcome = "" if self.wakes == 2000 else None
            return True

    monkeypatch.setattr(mpi, "CHANGED", Busy())
    app: Any = MPIApp(Template(key="m", name="m", kind=Kind.APP, arguments=(Argument(name="command", value="true"),)))
    app._follow(SimpleNamespace(wait=lambda _: None, log=lambda _: None), job, 0)

    assert job.outcome == ""


@pytest.mark.slow
def test_ranks_wait_for_each_other(tmp_path: Path) -> None:
    """Each rank waits until all others have begun, so they run at the same time, also more of them than workers."""
    wait = f"mkdir -p {tmp_path}/begun; touch {tmp_path}/begun/$DROPFLOW_RANK; "
    wait += f"until [ $(ls {tmp_path}/begun | wc -l) = 70 ]; do sleep 0.05; done; {COMMAND}"
    status, contents = mpi_run(job(wait, ranks=70, launcher="none"), tmp_path / "run")

    assert status is SessionState.FINISHED
    assert contents[0].count("of 70") == 70


@pytest.mark.slow
def test_a_launcher_starts_the_ranks(tmp_path: Path) -> None:
    """A launcher is called with the number of ranks; it gives each process its rank in a variable of its own."""
    program = launcher(
        tmp_path,
        "import os, subprocess, sys\n"
        "count = int(sys.argv[2])\n"
        "made = [subprocess.Popen(sys.argv[3:], env=dict(os.environ, PMI_RANK=str(one))) for one in range(count)]\n"
        "sys.exit(max(one.wait() for one in made))\n",
    )
    status, contents = mpi_run(job(COMMAND, launcher=f"{program} -np %n"), tmp_path / "run")

    assert status is SessionState.FINISHED
    assert contents == ["0 of 3\n1 of 3\n2 of 3\n"]


@pytest.mark.slow
def test_mpirun_is_used_if_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a setting, the first of mpirun and mpiexec on the path starts the ranks."""
    program = launcher(
        tmp_path,
        "import os, subprocess, sys\n"
        "assert sys.argv[1] == '-n', sys.argv\n"
        "for one in range(int(sys.argv[2])):\n"
        "    subprocess.run(sys.argv[3:], env=dict(os.environ, OMPI_COMM_WORLD_RANK=str(one)), check=True)\n",
    )
    Path(program).rename(tmp_path / "mpirun")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    status, contents = mpi_run(job(COMMAND), tmp_path / "run")

    assert (status, contents) == (SessionState.FINISHED, ["0 of 3\n1 of 3\n2 of 3\n"])


@pytest.mark.slow
def test_a_failed_rank_fails_the_job(tmp_path: Path) -> None:
    """If one rank ends with an error, the others are stopped, and the session fails with the status."""
    status, _ = mpi_run(job("[ $DROPFLOW_RANK = 1 ] && exit 7; sleep 60", launcher="none"), tmp_path / "run")

    assert status is SessionState.FAILED
    assert "it ended with status 7" in (tmp_path / "run" / "summary.json").read_text()


def test_a_launcher_that_is_missing_is_named(tmp_path: Path) -> None:
    """A graph whose launcher is not installed is refused before it runs."""
    with pytest.raises(BadGraphError, match="DF106 the program 'no-such-mpirun' is not on PATH"):
        mpi_run(job(COMMAND, launcher="no-such-mpirun -n %n"), tmp_path / "run")


@pytest.mark.slow
def test_ranks_are_placed_together_as_the_graph_says() -> None:
    """Each two ranks of a job, in order, are on one part, and a job is on as many parts as it can have."""
    graph = job(COMMAND, ranks=5, copies=2, ranks_per_node=2)
    planned = partition(graph, PartitionOptions(parts=3))
    row = next(
        number
        for number, template in enumerate(graph.templates)
        if template.axes[-1:] and template.axes[-1].kind == "mpi"
    )
    parts = planned.part[planned.template == row].reshape(2, 5)

    assert (parts[:, 0] == parts[:, 1]).all()
    assert (parts[:, 2] == parts[:, 3]).all()
    assert [len(set(part)) for part in parts.tolist()] == [3, 3]


def test_a_runner_of_one_attempt_refuses_jobs(tmp_path: Path) -> None:
    """Inline, the ranks could not run together: the session is refused before anything runs."""
    with pytest.raises(BadGraphError, match="3 ranks that run at once"):
        mpi_run(job(COMMAND), tmp_path / "run", "inline")


@pytest.mark.parametrize("command", ["cat < %i0 > %o0", "cat {x} > %o0"])
def test_an_input_and_an_output_port_of_one_name_are_different_data(tmp_path: Path, command: str) -> None:
    """A command reads its input and writes its output, also if they have one name: only a port for both is changed."""
    (tmp_path / "in.txt").write_text("kept")
    ports = [Argument(name="x", usage=TWO_PORTS), Argument(name="command", value=command)]

    one = try_app(BASH, tmp_path, inputs=[Given("x", tmp_path / "in.txt")], outputs=["x"], fields=ports)

    assert one.contents == [b"kept"]


def test_several_inputs_and_an_output_may_be_at_ports_of_one_name(tmp_path: Path) -> None:
    """Ports of graphs that were drawn long ago are often all called the same."""
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text(file.name)
    ports = [Argument(name="x", usage=TWO_PORTS), Argument(name="command", value="cat %i0 %i1 > %o0")]

    got = try_app(BASH, tmp_path, inputs=[Given("x", file) for file in files], outputs=["x"], fields=ports)

    assert got.contents == [b"ab"]
