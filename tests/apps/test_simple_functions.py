"""The small functions for Python function nodes."""

from pathlib import Path

import pytest

from dropflow.apps import function
from dropflow.testing.attempts import Given, try_app


def test_functions_return_what_their_names_promise(tmp_path: Path) -> None:
    """Lines, ranges, maxima and JSON."""
    (tmp_path / "lines").write_text("a\nb\n")

    assert function.readLines(str(tmp_path / "lines")) == ["a", "b"]
    assert function.createRange(4, 1) == [1, 2, 3]
    assert function.getMax([1, 3, 2]) == 3
    assert function.string2json('{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_no_text_is_none(text: str | None) -> None:
    """Real graphs leave the text away: then the answer is None."""
    assert function.string2json(text) is None


def test_several_outputs_get_their_own(tmp_path: Path) -> None:
    """The function for many outputs gives each port its value."""
    fields = {"func_name": "dlg.apps.simple_functions.createMultiOut", "v1": 5}

    got = try_app(
        "dlg.apps.pyfunc.PyFuncApp", tmp_path, inputs=[Given("v2", 6)], outputs=["out1", "out2"], fields=fields
    )

    assert got.values == [5, 6]
