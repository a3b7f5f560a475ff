"""Paths of the files of data drops."""

import doctest
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.data import file as naming
from dropflow.data.file import PLACEHOLDERS, check_name, final_path
from dropflow.errors import BadParameterError
from dropflow.ids import drop_file_name

BASE = Path("/s/files")
OID = "2024-10-30T12:01:57_0140555b-e1c4_0-3"


def _path(value: str, **environment: str) -> str:
    return final_path(value, base=BASE, oid=OID, now=1_700_000_000.0, environment=environment)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("name.txt", "/s/files/name.txt"),
        ("sub/name.txt", "/s/files/sub/name.txt"),
        ("sub/../name.txt", "/s/files/name.txt"),
        ("/abs/x", "/abs/x"),
        ("/abs//./x", "/abs/x"),
        ("$PLACE/x", "/data/x"),
        ("${PLACE}/x", "/data/x"),
        ("a_{uid}.dat", "/s/files/a_2024-10-30T12_01_57_0140555b-e1c4_0-3.dat"),
        ("a_{humanKey}.dat", "/s/files/a_0140_0-3.dat"),
        ("{datetime}.dat", "/s/files/2023-11-14.dat"),
        ("{dlg}.dat", "/s/files/dropflow.dat"),
        ("{{uid}}", "/s/files/{uid}"),
    ],
)
def test_file_names_follow_the_documented_table(value: str, expected: str) -> None:
    """Each row of the table in the docstring of the module holds."""
    assert _path(value, PLACE="/data") == expected


@pytest.mark.parametrize("value", ["", "  ", "None", "./", ".", "{auto}"])
def test_a_file_without_a_name_is_named_after_its_drop(value: str) -> None:
    """No name, the text None, a bare directory and {auto} give a name that is unique to the drop."""
    assert _path(value) == f"/s/files/{drop_file_name(OID)}"


@pytest.mark.parametrize(("value", "folder"), [("sub/", "/s/files/sub"), ("/abs/", "/abs")])
def test_a_trailing_slash_names_a_directory(value: str, folder: str) -> None:
    """The file gets a generated name in that directory."""
    assert _path(value) == f"{folder}/{drop_file_name(OID)}"


def test_unknown_placeholders_are_named() -> None:
    """An unknown placeholder is an error that lists the known ones."""
    with pytest.raises(BadParameterError, match=r"unknown placeholder \{InputMS\}") as caught:
        _path("{InputMS}.fits")
    assert all(f"{{{name}}}" in caught.value.hint for name in PLACEHOLDERS)


def test_unset_variables_are_named() -> None:
    """A variable that is not set is an error, with a hint how to set it."""
    with pytest.raises(BadParameterError, match="variable DATA_HOME, which is not set") as caught:
        _path("$DATA_HOME/x")
    assert "export DATA_HOME=" in caught.value.hint


def test_dlg_root_has_a_default() -> None:
    """$DLG_ROOT is ~/dlg where it is not set, as in DALiuGE."""
    assert _path("$DLG_ROOT/testdata/x") == str(Path.home() / "dlg/testdata/x")


@pytest.mark.parametrize("value", ["../x", "a/../../x", ".."])
def test_relative_paths_that_leave_the_session_are_refused(value: str) -> None:
    """A relative path that leaves the session's files is an error."""
    with pytest.raises(BadParameterError, match="leaves the directory"):
        check_name(value)


@given(st.text(alphabet="ab./ {}", max_size=12))
def test_relative_paths_stay_inside(value: str) -> None:
    """Any relative value gives a normal path below the base, or an error."""
    try:
        path = final_path(value, base=BASE, oid=OID, now=0.0, environment={})
    except BadParameterError:
        return
    assert value.strip().startswith("/") or (path.startswith("/s/files/") and os.path.normpath(path) == path)


@given(st.lists(st.text(min_size=1, max_size=150), min_size=2, max_size=6, unique=True))
def test_file_names_of_drops_are_safe_and_different(oids: list[str]) -> None:
    """Different ids give different names, each one safe segment of at most 100 characters."""
    names = [drop_file_name(oid) for oid in oids]

    assert len(set(names)) == len(names)
    assert all("/" not in name and not name.startswith((".", "-")) and 0 < len(name) <= 100 for name in names)


def test_doctest_examples_are_right() -> None:
    """The examples in the docstrings are right."""
    assert doctest.testmod(naming).failed == 0
