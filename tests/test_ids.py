"""Names of sessions, and of their directories."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.ids import is_session_name, session_directory_name


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
