"""Modules that import nothing of ours: failures, names of sessions, private directories, JSON depth, formatting."""

import json
import logging
import os
import unicodedata
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.addresses import is_loopback
from dropflow.api.auth import store_token
from dropflow.cli.servers.server_process import claim_root, start_logging
from dropflow.errors import AppError, DropflowError, StorageError
from dropflow.failure import Failure, text_of
from dropflow.files import private_directory, replace_file
from dropflow.formatting import (
    DASH,
    format_count,
    format_duration,
    format_quantity,
    format_rate,
    format_size,
    format_time,
    plural,
    single_line,
)
from dropflow.graph import nesting as nesting_module
from dropflow.graph.nesting import nesting, too_deep
from dropflow.ids import is_session_name, session_directory_name
from managers.keys import create

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=200)
"""Lone surrogates and control characters included."""


class _Text(str):
    """A string whose methods do not work."""

    __slots__ = ()

    def __len__(self) -> int:
        raise ValueError("no length")

    def isascii(self) -> bool:
        raise ValueError("no")

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        raise ValueError(f"no {encoding} {errors}")


def _raising(name: str, error: BaseException) -> type[Exception]:
    def refuse(_: object) -> str:
        raise error

    return type(name, (Exception,), {"__str__": refuse, "__repr__": refuse})


class _NameRefused(type):
    @property
    def __name__(cls) -> str:
        raise ValueError("no name")


class _NamelessError(Exception, metaclass=_NameRefused):
    pass


def _cyclic() -> Exception:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def _noted() -> Exception:
    error = ValueError("with notes")
    error.__notes__ = 5  # type: ignore[assignment]
    return error


HOSTILE = {
    "text raises": _raising("Broken", ValueError("no text"))(),
    "text exits": _raising("Exiting", SystemExit(3))(),
    "text interrupts": _raising("Interrupting", KeyboardInterrupt())(),
    "text recurses": _raising("Deep", RecursionError())(),
    "text is no text": type("Wrong", (Exception,), {"__str__": lambda _: 5})(),
    "text is a strange string": type("Strange", (Exception,), {"__str__": lambda _: _Text("x")})(),
    "huge": ValueError("x" * 50_000_000),
    "surrogate": ValueError("\udcff\ud800"),
    "nul": ValueError("a\0b"),
    "group": ExceptionGroup("many", [ValueError("\udcff"), _raising("Broken", ValueError())()]),
    "cycle": _cyclic(),
    "notes": _noted(),
    "no name": _NamelessError("x"),
    "module without a name": ModuleNotFoundError("x", name=5),  # type: ignore[call-overload]
    "exit with a strange status": SystemExit(_raising("Broken", ValueError())()),
    "generator exit": GeneratorExit("x"),
    "ours without text": DropflowError(None),  # type: ignore[arg-type]
    "ours with a strange text": AppError(_Text("x"), hint=5, where=_Text("y")),  # type: ignore[arg-type]
}
"""Exceptions that user code may raise."""


@pytest.mark.parametrize("case", HOSTILE)
def test_every_exception_gives_a_failure(case: str) -> None:
    """For any exception, whatever its methods do, the failure is small and can be encoded."""
    failure = Failure.of(HOSTILE[case])
    body = msgspec.msgpack.encode(failure)

    assert msgspec.msgpack.decode(body, type=Failure) == failure
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure
    assert len(body) < 60_000
    assert failure.text


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_every_text_can_be_sent_and_stored(kind: str, text: str, hint: str, detail: str) -> None:
    """A failure accepts any text; characters that UTF-8 cannot encode are escaped, others are unchanged."""
    failure = Failure(code="DF105", kind=kind, text=text, hint=hint, detail=detail)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure) == failure
    for given_text, kept in (
        (kind, failure.kind),
        (text, failure.text),
        (hint, failure.hint),
        (detail, failure.detail),
    ):
        assert kept == given_text.encode(errors="backslashreplace").decode()


def test_long_texts_are_cut() -> None:
    """A long text keeps its beginning, a long detail (a traceback) its end; both say how much is missing."""
    failure = Failure(code="DF105", kind="E", text="a" * 10_000, detail="b" * 99_999 + "end")

    assert failure.text.startswith("aaa")
    assert failure.text.endswith("[... 6050 characters left out]")
    assert failure.detail.startswith("[80052 characters left out ...]")
    assert failure.detail.endswith("bend")


def test_the_text_of_an_exception_whose_str_raises() -> None:
    """The text of an exception whose __str__ raises names the exception and what was raised."""
    assert text_of(HOSTILE["text raises"]) == "its text is not available: __str__ raised ValueError"


# Names of sessions, and of their directories.


@pytest.mark.parametrize(
    "name",
    [
        "x y",
        "graph_name_2025-01-01T10:00:00.123456",
        "a graph_2025-01-01T10-00-00.123456",
        "1767225600.123",
        "run+1 (copy) #2 50%",
        "étude",
        "_x",
        "a" * 100,
    ],
)
def test_names_that_clients_use_are_allowed(name: str) -> None:
    """Session names may have blanks, colons, plus signs and letters of any script."""
    assert is_session_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " x",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "-x",
        "a\nb",
        "a\n",
        "a\0",
        "a\x1b[0m",
        "a\u202eb",
        "\ud800",
        "a" * 101,
        "\u4e00" * 60,  # nine characters each in a directory's name, which takes 255
    ],
)
def test_unsafe_names_are_refused(name: str) -> None:
    """Slashes, control characters, direction marks, option-like names and long names are refused."""
    assert not is_session_name(name)


@pytest.mark.slow
@given(
    st.text(min_size=1, max_size=30).filter(is_session_name), st.text(min_size=1, max_size=30).filter(is_session_name)
)
def test_directories_of_sessions_are_safe_and_unique(one: str, other: str) -> None:
    """The directory of a session is one safe path segment that decodes to its name, so it is unique."""
    directory = session_directory_name(one)

    assert unquote(directory) == one
    assert directory.isascii()
    assert not set(directory) & set("/\\ \0")
    assert directory[0] not in ".-"
    assert (directory == session_directory_name(other)) == (one == other)


def test_plain_names_are_their_own_directories() -> None:
    """A plain name is the name of its directory, so directories of earlier versions are found."""
    assert session_directory_name("imaging-20261121.073600_2") == "imaging-20261121.073600_2"


# Private directories: safe from other users of the host.


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    """With any umask, other users can neither enter nor change a new directory and the parents that it needs."""
    before = os.umask(0)
    try:
        made = private_directory(tmp_path / "a" / "b" / "c")
        store_token(tmp_path / "config" / "dropflow" / "token", "secret")
        create(tmp_path / "keys" / "dropflow" / "cluster.key")
        with ExitStack() as stack:
            claim_root(tmp_path / "state" / "dropflow" / "n1", stack)
        log = logging.getLogger("test of private files")
        start_logging(level="info", file=None, as_json=False, own=made / "manager.log")
        log.info("a line")
    finally:
        os.umask(before)
        logging.basicConfig(handlers=[], force=True)

    found = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert {str(path): oct(mode) for path, mode in found.items() if mode & 0o077} == {}
    assert {Path("a/b/c/manager.log"), Path("keys/dropflow/cluster.key")} <= found.keys()
    assert private_directory(made) == made


def test_a_directory_that_everybody_can_write_to_is_refused(tmp_path: Path) -> None:
    """A directory that every user can write to is refused: others could replace sessions and tokens."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)

    with ExitStack() as stack, pytest.raises(StorageError, match="every user of this host can write") as caught:
        claim_root(tmp_path / "open", stack)
    assert caught.value.hint == f"chmod o-w {tmp_path / 'open'}"


def test_the_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that belongs to another user is refused: it may be a trap."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    (tmp_path / "theirs").mkdir()
    if (tmp_path / "theirs").stat().st_uid == 0:
        os.chown(tmp_path / "theirs", 4712, -1)

    with pytest.raises(StorageError, match="belongs to another user"):
        private_directory(tmp_path / "theirs")


# The depth of JSON text, without parsing it.


def _depth(value: Any) -> int:
    """Return how deep lists and objects of a value are nested, by recursion."""
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


_TEXTS = st.text(alphabet='\\"[]{}a/\n', max_size=8)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)),
    max_leaves=20,
)


@given(value=_VALUES, chunk=st.integers(1, 12), indent=st.sampled_from([None, 1]))
def test_depth_is_that_of_the_parsed_value(value: Any, chunk: int, indent: int | None) -> None:
    """The scan of the bytes gives the depth of the value, wherever pieces begin and whatever strings contain."""
    data = json.dumps(value, indent=indent).encode()
    depth = _depth(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting_module, "_CHUNK_BYTES", chunk)

        assert nesting(data) == depth
        assert not too_deep(data, depth)
        assert depth == 0 or too_deep(data, depth - 1)


def test_a_document_that_is_too_deep_is_not_read_to_its_end() -> None:
    """Of a document that is too deep, only the beginning is read."""
    first = b"[" * 300_000

    assert 200 < nesting(first + b"[" * 10_000_000, enough=200) < 300_000
    assert nesting(first) == 300_000


@given(st.binary(max_size=60))
def test_any_bytes_have_a_depth(data: bytes) -> None:
    """For bytes that are not JSON, the result is at most the number of brackets."""
    assert 0 <= nesting(data) <= data.count(b"[") + data.count(b"{")


# Numbers, sizes, durations, times and names as text.


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (format_count(100000), "100,000"),
        (plural(0, "drop"), "0 drops"),
        (plural(1, "drop"), "1 drop"),
        (plural(1200, "drop"), "1,200 drops"),
        (format_quantity(1234.0), "1,234"),
        (format_quantity(0.25), "0.25"),
        (format_quantity(1.5e12), "1.5e+12"),
        (format_duration(0.24), "0.24 s"),
        (format_duration(12.34), "12.3 s"),
        (format_duration(59.96), "1 min 00 s"),
        (format_duration(185), "3 min 05 s"),
        (format_duration(7620), "2 h 07 min"),
        (format_duration(3 * 86400 + 4 * 3600), "3 d 4 h"),
        (format_duration(None), DASH),
        (format_rate(0.25), "0.25/s"),
        (format_rate(48000), "48,000/s"),
        (format_size(None), DASH),
        (format_size(17), "17 Bytes"),
        (format_size(999), "999 Bytes"),
        (format_size(1200), "1.2 kB"),
        (format_size(999_999), "1.0 MB"),
        (format_size(3_400_000_000), "3.4 GB"),
        (format_time(1_790_857_000), "2026-10-01 12:16:40 UTC"),
        (format_time(0), DASH),
        (format_time(1e30), DASH),
    ],
)
def test_values_have_their_unit(found: str, expected: str) -> None:
    """Each value is shown with its unit and its significant digits."""
    assert found == expected


@given(st.integers(0, 10**21))
def test_sizes_are_short(number: int) -> None:
    """A size takes at most nine characters."""
    assert len(format_size(number)) <= 9


_TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that turn the direction of text, so that a name could show as another one (Unicode 9.0, UAX 9)."""


@given(st.text() | st.text(_TURNING + "ab"), st.integers(10, 50))
def test_foreign_text_is_short_and_without_controls(text: str, longest: int) -> None:
    """The result is one short line without control characters, for any text."""
    found = single_line(text, longest)

    assert len(found) <= longest
    assert found.splitlines() in ([], [found])
    assert not [letter for letter in found if letter in _TURNING or unicodedata.category(letter) in ("Cc", "Cs")]


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters=_TURNING), max_size=20))
def test_ordinary_text_is_unchanged(text: str) -> None:
    """A short text without control characters stays as it is."""
    assert single_line(text, 20) == text


# The loopback interface.


def test_loopback_has_names_and_addresses() -> None:
    """Only localhost, 127.0.0.0/8 and ::1 are loopback."""
    assert all(map(is_loopback, ("localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("", "example.org", "10.0.0.1", "::", "localhost.evil.example")))


def test_a_file_with_a_long_name_is_replaced(tmp_path: Path) -> None:
    """The file beside it has a name that the file system takes, whatever the characters of the name need."""
    path = tmp_path / ("\N{CJK UNIFIED IDEOGRAPH-706B}" * 85)
    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
