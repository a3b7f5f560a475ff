"""Looking for what a graph names, without importing or running it."""

import sys
from pathlib import Path

import pytest

from dropflow.apps.check import MissingName, find_absent, names_of

BINDINGS = {
    "a = 1": {"a"},
    "a, (b, *c) = x": {"a", "b", "c"},
    "a: int = 1": {"a"},
    "def f(x):\n    y = 1": {"f"},
    "class C:\n    z = 1": {"C"},
    "import os.path, sys as s\nfrom re import match as m, sub": {"os", "s", "m", "sub"},
    "try:\n    a = 1\nexcept E as e:\n    b = 2\nelse:\n    c = 3": {"a", "b", "c", "e"},
    "if x:\n    def f(): pass\nelse:\n    f = None": {"f"},
    "for i in x:\n    with y as z:\n        pass": {"i", "z"},
    "(n := 3)": {"n"},
    "def f():\n    global g\n    g = 1": {"f", "g"},
    "match x:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass": {"a", "b", "c", "d"},
    "x = lambda q: q": {"x"},
}


@pytest.mark.parametrize("source", BINDINGS)
def test_the_names_that_a_source_binds(source: str) -> None:
    """All ways to bind a name at the top level count, and nothing inside functions and classes does."""
    names = names_of(source)

    assert names is not None
    assert names.bound == BINDINGS[source]


@pytest.mark.parametrize(
    "source",
    ["exec('a = 1')", "globals()['a'] = 1", "from os import *", "import sys\nsys.modules[__name__].a = 1", "def f(:"],
)
def test_what_only_running_can_tell_is_not_guessed(source: str) -> None:
    """A source that makes names while it runs, or cannot be parsed, has no list of names."""
    assert names_of(source) is None


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("json.dumps", None),
        ("json.dumpz", ("json", "dumpz")),
        ("json.decoder.JSONDecoder", None),
        ("json.nosuch.f", ("json", "nosuch")),
        ("os.path.join", None),
        ("xml.etree.ElementTree.parse", None),
        ("math.sqrt", None),
        ("math.sqroot", ("math", "sqroot")),
        ("numpy.whatever", None),  # numpy answers for names of its own accord
        ("nosuchpackage.f", ("nosuchpackage", "")),
        ("no-name.f", ("no-name", "")),
        (".f", ("", "")),
    ],
)
def test_a_name_is_absent_only_where_that_is_certain(name: str, absent: tuple[str, str] | None) -> None:
    """The first part that is missing is named; what only importing can tell counts as there."""
    found = find_absent(name.split("."))

    assert (found and (found.module, found.name)) == absent


def test_packages_of_users_are_looked_into_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules inside packages are found below packages that would fail when imported; a change is seen."""
    package = tmp_path / "looked_into"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "inner.py").write_text("def f(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert find_absent(["looked_into", "inner", "f"]) is None
    assert find_absent(["looked_into", "inner", "grown_up"]) == MissingName("looked_into.inner", "grown_up", ("f",))
    (package / "inner.py").write_text("def f(): pass\ndef grown_up(): pass\n")
    assert find_absent(["looked_into", "inner", "grown_up"]) is None
    assert "looked_into" not in sys.modules
