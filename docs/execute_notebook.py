"""Executes the notebooks of the documents, and stores what their cells show: ``make pictures``.

Each code cell is executed in one namespace, as Jupyter does it, without Jupyter: what it prints, and the value of its
last expression as text and picture, become its outputs.
"""

import ast
import io
import json
import os
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

__all__ = ["execute"]

NOTEBOOKS = Path(__file__).resolve().parent / "tutorial"


def execute(notebook: Path, names: dict[str, Any], *, is_stored: bool = False) -> None:
    """Execute a notebook in an empty directory.

    Parameters
    ----------
    notebook : Path
        The file, in format 4 of nbformat.
    names : dict
        Gets the names that its cells define.
    is_stored : bool
        Whether the outputs in the file are replaced.

    Raises
    ------
    Exception
        What a cell has raised.
    """
    document = json.loads(notebook.read_text(encoding="utf-8"))
    names["__name__"] = "__main__"
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    with _empty_directory():
        for number, cell in enumerate(cells, start=1):
            cell["execution_count"] = number
            cell["outputs"] = _outputs("".join(cell["source"]), names, number)
    if is_stored:
        notebook.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102 - the cells are documents of this repository
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        shown = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": _shown(value)}
        outputs.append(shown)
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(True)}
    if hasattr(value, "_repr_png_"):
        data = {"text/plain": [f"<{type(value).__name__}>"], "image/png": b64encode(value._repr_png_()).decode()}
    return data


@contextmanager
def _empty_directory() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)  # noqa: TID251 - cells use relative paths, as in Jupyter
        try:
            yield
        finally:
            os.chdir(before)  # noqa: TID251 - as above


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        execute(path, {}, is_stored=True)
        sys.stdout.write(f"{path}\n")
