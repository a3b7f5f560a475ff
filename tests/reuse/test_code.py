"""What counts of the code of an application, and which line of a function is shown as its first change."""

import shutil
from pathlib import Path

import pytest

from dropflow.reuse import code
from dropflow.reuse.code import CodeReader, first_changed_line, is_same_code

_BEFORE = "import math\n\ndef f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (_BEFORE, None),
        ("import math\n\ndef f(x):\n    return 2 * x\n", (4, "return 2 * x")),
        ("from __future__ import annotations\nimport math\n\ndef f(x):\n    return 2 * x\n", (5, "return 2 * x")),
        ("# faster\nimport math\n\ndef f(x):\n    return 2 * x\n", (5, "return 2 * x")),
        ("# faster\nimport math\nimport os\n\ndef f(x):\n    return x\n", (3, "import os")),
        ("# the same\nimport math\n\ndef f(x):\n    return x\n", (1, "# the same")),
        ("import math\n", (2, "")),
    ],
)
def test_the_first_changed_line_is_one_that_people_wrote(now: str, line: tuple[int, str] | None) -> None:
    """Comments and imports from ``__future__``, which dropflow adds, are shown only if nothing else has changed."""
    assert first_changed_line(_BEFORE, now) == line


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"# coding: latin-1\nname = 'caf\xe9'\n", b"\xe9 = 1\n"])
def test_modules_in_any_encoding_count(start: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit of a module counts, also with a byte order mark, another encoding than UTF-8, or one that is wrong."""
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "module_in_any_encoding.py"
    keys = set()
    for value in (b"1", b"2"):
        module.write_bytes(start + b"x = " + value + b"\n")
        keys.add(CodeReader().of_name(f"{module.stem}.x"))
    assert len(keys) == 2


def test_imports_of_a_module_with_a_byte_order_mark_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that a module imports count, also if an editor has put a byte order mark before its first line."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_by_marked.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "marked.py").write_text("import imported_by_marked\n", encoding="utf-8-sig")
    assert "imported_by_marked.py" in {part.name for part in CodeReader().of_name("marked.f")}


def test_two_sources_are_compared_once() -> None:
    """Each attempt of a node tells why it runs, and the comparison takes longer than many attempts."""
    before, now = _BEFORE, f"# once\n{_BEFORE}y = 1\n"
    found = first_changed_line(before, now)
    misses = first_changed_line.cache_info().misses

    assert first_changed_line(before, now) == found == (6, "y = 1")
    assert first_changed_line.cache_info().misses == misses


@pytest.mark.slow
def test_a_package_that_is_installed_while_the_process_runs_counts_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a manager, too, which has looked at the installed packages before: another version is another key."""
    assert CodeReader().of_name("numpy.sum")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("dropflow.reuse.code.is_user_file", lambda _: False)
    (tmp_path / "installed_late.py").write_text("")
    before = ""
    for version in ("1.0", "2.0"):
        record = tmp_path / f"installed_late-{version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: installed_late\nVersion: {version}\n")
        (record / "top_level.txt").write_text("installed_late\n")
        if before:
            shutil.rmtree(tmp_path / f"installed_late-{before}.dist-info")
        before = version

        assert CodeReader().of_name("installed_late.f")[0].value == version


def test_not_all_sources_are_remembered() -> None:
    """A manager runs for months, and sources change meanwhile."""
    for number in range(1100):
        assert not is_same_code(f"x = {number}", "")

    assert code._parsed.cache_info().currsize <= 1024
