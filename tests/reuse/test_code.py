"""Which line of a function is shown as its first change."""

import pytest

from dropflow.reuse.code import first_changed_line

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
