"""Text for people: aligned columns, short lists, and commands to paste into a shell."""

import shlex
from collections.abc import Iterator, Sequence

__all__ = ["columns", "few", "shell_command"]


def columns(rows: Sequence[Sequence[object]], *, header: Sequence[str] = (), indent: str = "  ") -> Iterator[str]:
    """Yield `rows` as aligned columns, numbers to the right; every line starts with `indent`."""
    cells = [[_cell(value) for value in row] for row in rows]
    shown = [list(header), *cells] if header else cells
    if not shown:
        return
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    right = [bool(rows) and all(isinstance(row[column], int | float) for row in rows) for column in range(len(widths))]
    for row in shown:
        fitted = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        yield (indent + "  ".join(fitted)).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def few(names: Sequence[str], most: int = 4) -> str:
    """Return the first names with commas between, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shell_command(command: str, *names: str) -> str:
    """Return ``dropflow COMMAND NAME...`` quoted for a shell; names that begin with a dash come after ``--``."""
    marked = ["--", *names] if any(name.startswith("-") for name in names) else names
    return shlex.join(["dropflow", command, *marked])
