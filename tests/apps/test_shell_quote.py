"""Values in shell commands."""

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.apps.shell_quote import Replacement, substitute
from dropflow.errors import AppError

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
    "after an escaped quote": "printf %s. \\'{x} | tail -c +2",
    "after a comment with a quote": "# don't\nprintf %s. {x}",
    "after a word with a hash": "echo a#b > /dev/null; printf %s. '{x}'",
    "in a here-document": "cat <<END\n{x}.\nEND\n",
    "in a literal here-document": "cat <<'END'\n{x}.\nEND\n",
    "in a here-document's command": 'cat <<END\n$(printf %s. "{x}")\nEND\n',
    "after a here-document": "cat <<END > /dev/null; printf %s. '{x}'\nit's\nEND\n",
    "in a here-string": "cat <<< {x}.",
    "in a case": 'case a in b) ;; a) printf %s. "{x}";; esac',
    "in a function": "f() { printf %s. {x}; }; f",
}


def run(command: str, value: str) -> str:
    """What bash prints for `command` with `value` in its place."""
    text = substitute(command, PLACEHOLDER, lambda _: Replacement((value,)))
    done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("value", NASTY)
@pytest.mark.parametrize("place", PLACES)
def test_bash_sees_the_value_itself(place: str, value: str) -> None:
    """In every place the command gets the exact value: nothing of it is expanded, split or run."""
    assert run(PLACES[place], value).rstrip("\n") == f"{value}."


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30))
def test_any_text_survives_any_place(value: str) -> None:
    """One command with the value in several kinds of quotes gives the value back from each."""
    command = "printf '%s\\0' {x} \"{x}\" '{x}' $'{x}' \"$(printf %s_ '{x}')\" `printf %s_ \"{x}\" | base64 -w0`"
    shown = run(command, value).split("\0")

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


def test_arithmetic_takes_numbers_only() -> None:
    """Bash evaluates arithmetic expressions, so only plain values are accepted in them."""
    assert run("echo $(( {x} * 2 ))", "21") == "42\n"
    with pytest.raises(AppError, match="arithmetic"):
        run("echo $(( {x} ))", "a[$(echo run)]")


@pytest.mark.parametrize(
    ("command", "value", "text"),
    [
        ("echo {x}", "a\0b", "null byte"),
        ("cat <<END\n{x}\nEND\n", "a\nEND\necho run", "ends the here-document"),
        ('echo "${V:-{x}}"', "it's", "assign the value"),
    ],
)
def test_values_that_cannot_be_quoted_are_refused(command: str, value: str, text: str) -> None:
    """What no quoting can protect is an error, not a guess."""
    with pytest.raises(AppError, match=re.escape(text)):
        run(command, value)
