"""Text for people: aligned columns, lists, numbers in readable units, and commands to paste into a shell."""

import shlex
from collections.abc import Iterator, Sequence

__all__ = ["columns", "few", "plural", "readable_bytes", "readable_seconds", "shell_command"]


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


def plural(number: int, noun: str) -> str:
    """Return `number` and `noun`, with an s unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def readable_bytes(size: float) -> str:
    """Return `size` in bytes with a decimal unit: ``950 B``, ``1.2 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004  (the step of decimal units)
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def readable_seconds(seconds: float) -> str:
    """Return `seconds` as ``0.24 s``, ``12.3 s``, ``4 min 05 s`` or ``2 h 07 min``."""
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.2f} s"
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
