"""The answer of a command in a test."""

import json
from collections.abc import Callable
from typing import Any

Command = Callable[..., "Answer"]
"""Runs ``dropflow`` with arguments."""


class Answer:
    """Exit status, standard output and standard error of a command."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.out = out
        self.text = out.decode(errors="replace")
        self.err = err.decode()

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        found: dict[str, Any] = json.loads(self.out)
        return found
