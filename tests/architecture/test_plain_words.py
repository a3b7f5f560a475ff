"""Code, tests and documents are in plain technical English, and name what exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PRODUCT, ROOT, TESTS, files, parsed
from tests.docs.documents import exists

_INVERTED = (
    r"(?:Had|Were|Should|Does|Is|Has|Did|Was|Do|Are|Can|Could) (?:it|he|they|there|the|a|an|its|one)\b[^?\n]*, "
    r"(?:it|the|they|he|no|that|then)"
)
_RELATIVE = r"(?:Who|, who) (?:asks|waits|comes|reads|writes|wants|has|is|was|sends|starts|stops|gets|lets|does|needs)"
_WORDS = {
    r"whoever|whomever|whosoever": "the user, the process ...",
    r"nobody": "no process, no user, no node ...",
    r"somebody|someone|anybody|anyone|everybody": "a user, a process, all nodes ...",
    r"whatever (?:comes|becomes|stands|happens)": "any, all",
    r"of which|of whom": "two sentences",
    r"in vain": "without a result",
    r"comes? of (?:it|that|them|this|any)|came of it|what bec(?:omes|ame) of|becomes of": "the result, the state",
    r"whose (?:it is|they are|is it)": "the name of the owner",
    r"dooms?|doomed|stillborn|forsaken|burie[sd]|bury|hire[sd]?|hiring": "abort, fail to start, lost, reap, start",
    r"hurry|hurries|hurried|tarry": "immediately",
    r"owes?|owed": "must still send",
    r"for ever": "forever",
    r"tidings|the news|news of": "the event, the message",
    r"to be had|can(?:not)? be had": "available",
    r"by the word of|the word of a": "reported by",
    r"lest|as it were|thereof|whereof|wherein|herein|hitherto|henceforth|alas|is at an end|bears? with": "nothing",
    _INVERTED: "If ..., ...",
    _RELATIVE: "the user, the process ...",
}
_PATTERNS = {re.compile(rf"\b(?:{words})\b"): plain for words, plain in _WORDS.items()}
_NOT_COMMANDS = {"Whether", "The", "A", "An", "How", "Which"}
_ANY = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
"""All of them: one search of a file that has none takes a tenth of the time of a search of each line for each."""
_SUFFIXES = {".py", ".md", ".tpl", ".js", ".css", ".sh", ".toml", ".jinja"}
_FOLDERS = ("dropflow", "translator", "managers", "palettes", "tests", "docs", "examples", "benchmarks")
# Bad examples on purpose.
_EXCEPTIONS = {"CONTRIBUTING.md", "tests/architecture/test_plain_words.py"}


def _files() -> list[Path]:
    found = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in _SUFFIXES]
    found += [ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml"]
    return sorted(path.relative_to(ROOT) for path in found)


def _findings(path: Path) -> Iterator[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    if not _ANY.search(text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, plain in _PATTERNS.items():
            if found := pattern.search(line):
                yield f"{path}:{number}: {found[0]!r} (write: {plain})"


def _is_numeric(value: ast.expr | None) -> bool:
    if isinstance(value, ast.BinOp):
        return _is_numeric(value.left) and _is_numeric(value.right)
    if isinstance(value, ast.UnaryOp):
        return _is_numeric(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def _bare_numbers(path: Path) -> Iterator[str]:
    lines, body = (ROOT / path).read_text(encoding="utf-8").splitlines(), parsed(path).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if not (isinstance(statement, ast.Assign | ast.AnnAssign) and _is_numeric(statement.value)):
            continue
        is_documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        line = lines[statement.lineno - 1]
        if not (is_documented or "#" in line or lines[statement.lineno - 2].startswith("#")):
            yield f"{path}:{statement.lineno}: {line}"


@pytest.mark.slow
def test_constants_have_a_unit() -> None:
    """Each numeric constant of a module has a docstring or a comment, which gives its unit."""
    found = [finding for path in files(*PRODUCT) for finding in _bare_numbers(path)]

    assert found == []


@pytest.mark.slow
def test_words_are_plain() -> None:
    """No archaic or riddling phrase of the list is in the project."""
    found = [finding for path in _files() if str(path) not in _EXCEPTIONS for finding in _findings(path)]

    assert found == []


# Modules and classes that docstrings name exist.


_NAME = re.compile(r"(?<!`)`((?:dropflow|managers|translator|palettes)(?:\.\w+)+)`(?!`)")


def _names() -> dict[str, str]:
    """Return a place of each dotted name between single backticks in a docstring."""
    return {
        name: f"{path}:{getattr(node, 'lineno', 1)}"
        for path in files(*PRODUCT, *TESTS)
        if _NAME.search((ROOT / path).read_text(encoding="utf-8"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for name in _NAME.findall(ast.get_docstring(node) or "")
    }


@pytest.mark.slow
def test_modules_and_classes_that_docstrings_name_exist() -> None:
    """A renamed module or class is renamed in the docstrings too."""
    names = _names()

    assert "dropflow.api.operations" in names
    assert {place: name for name, place in names.items() if not exists(name)} == {}


def test_no_module_refers_its_reader_to_itself() -> None:
    """What is in the same module is named without it: "see `this.module`" leads a reader in a circle."""
    modules = {path: ".".join(path.with_suffix("").parts) for path in files(*PRODUCT) if path.name != "__init__.py"}
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in modules}

    assert [str(path) for path, name in modules.items() if re.search(rf"`{re.escape(name)}[.`]", texts[path])] == []


@pytest.mark.slow
def test_docstrings_say_what_functions_do_and_what_properties_are() -> None:
    """A function returns, yields or makes something; a property is something. The help of a command may be a noun."""
    odd = []
    for path in files(*PRODUCT):
        for node in ast.walk(parsed(path)):
            text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
            if text and isinstance(node, ast.FunctionDef):
                marks = [ast.unparse(decorator) for decorator in node.decorator_list]
                is_noun = any("property" in mark for mark in marks)
                is_help = any(mark.startswith("click.") or ".group" in mark or ".command" in mark for mark in marks)
                if node.name.startswith("test_"):
                    continue  # the conformance tests: the docstring is the promise
                first = text.split()[0]
                if (first == "Return") if is_noun else (first in _NOT_COMMANDS and not is_help):
                    odd.append(f"{path}:{node.lineno} {node.name}: {text.splitlines()[0]}")
    assert odd == []
