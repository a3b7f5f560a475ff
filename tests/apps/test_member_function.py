"""Objects that are passed through a graph."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from dropflow.graph.templates import Argument
from dropflow.testing.attempts import FAILED, Attempted, Given, try_app

CLASS = "dlg.apps.pyfunc.PyFuncApp"
COUNTER = (
    "class Counter:\n"
    "    def __init__(self, start=0): self.count = start\n"
    "    def add(self, step): self.count += step; return self.count * 10\n"
)


def node(directory: Path, name: str, code: str = "", *, inputs: Any = (), outputs: Any = ("self",)) -> Attempted:
    """Run a PythonMemberFunction node."""
    fields = (Argument(name="func_name", value=name), Argument(name="func_code", value=code))
    given = [Given(port, content) for port, content in inputs]
    return try_app(CLASS, directory, inputs=given, outputs=outputs, fields=fields, category="PythonMemberFunction")


def test_an_object_is_constructed_used_and_passed_on(tmp_path: Path) -> None:
    """An object of a class in func_code is passed from the constructor through a member function, with its changes."""
    made = node(tmp_path / "1", "Counter.__init__", COUNTER, inputs=[("start", 5)]).contents[0]

    used = node(tmp_path / "2", "Counter.add", inputs=[("self", made), ("step", 2)], outputs=["self", "result"])

    assert used.values[0].count == 7
    assert used.values[1] == 70


def test_classes_and_members_are_imported_by_dotted_names(tmp_path: Path) -> None:
    """Constructors and members can be given by dotted names."""
    made = node(tmp_path / "1", "fractions.Fraction.__init__", inputs=[("numerator", 1), ("denominator", 4)])

    used = node(
        tmp_path / "2",
        "fractions.Fraction.limit_denominator",
        inputs=[("self", made.contents[0]), ("max_denominator", 3)],
        outputs=["out"],
    )

    assert used.values[0] == made.values[0].limit_denominator(3)


def test_a_member_without_a_result_passes_the_object_on_only_at_self(tmp_path: Path) -> None:
    """The return value is written to the other outputs, also None."""
    used = node(tmp_path, "list.append", inputs=[("self", pickle.dumps([1])), ("", 2)], outputs=["self", "out"])

    assert used.values == [[1, 2], None]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [("Counter.nothing", 5, "is a int and has no member function 'nothing'"), ("x.y", FAILED, "is missing")],
)
def test_a_missing_member_or_object_is_an_error(tmp_path: Path, name: str, content: Any, text: str) -> None:
    """A missing member and a missing object are different errors."""
    assert text in node(tmp_path, name, inputs=[("self", content)]).failure.text


@pytest.mark.parametrize(
    ("name", "base", "code"),
    [
        ("__init__", "fractions.Fraction", ""),
        ("Fraction", "fractions.Fraction", ""),
        ("__init__", "Counter", COUNTER),
        ("Counter", "anything.Counter", COUNTER),
    ],
)
def test_base_name_is_the_class_to_construct(tmp_path: Path, name: str, base: str, code: str) -> None:
    """A bare `__init__`, or the bare name of a class, means the class that base_name names."""
    values = {"func_name": name, "base_name": base, "func_code": code}
    fields = tuple(Argument(name=key, value=value) for key, value in values.items())
    made = try_app(CLASS, tmp_path, outputs=("self",), fields=fields, category="PythonMemberFunction")

    assert type(made.values[0]).__name__ == base.rpartition(".")[2]
