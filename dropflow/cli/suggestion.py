"""Commands that answers suggest, as a person can paste them into a shell."""

import shlex

__all__ = ["suggestion"]


def suggestion(command: str, *names: str) -> str:
    """Return ``dropflow COMMAND NAME...`` quoted for a shell; names that begin with a dash are marked as names."""
    marked = ["--", *names] if any(name.startswith("-") for name in names) else names
    return shlex.join(["dropflow", command, *marked])
