"""Reads numbers in fields of forms."""

import msgspec

from dropflow.problems import Problem
from translator.problem_codes import problem
from translator.web.forms import Form

__all__ = ["whole_number"]


def whole_number(form: Form, name: str, default: int, *, least: int, most: int, found: list[Problem]) -> int:
    """Return a field as a number, or add PT002 to `found` and return the default."""
    text = form.text(name)
    if text in ("", "null", "None"):
        return default
    try:
        number = msgspec.convert(text, int, strict=False)
    except msgspec.ValidationError:
        number = None
    if number is None or not least <= number <= most:
        wrong = f"{name} is {text[:40]!r}, expected a whole number from {least} to {most}"
        found.append(problem("PT002", wrong, where=name, hint=f"leave it out for {default}"))
        return default
    return number
