"""Problems of a graph: each with a stable code, a severity, a place and a hint."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from dropflow.errors import BadGraphError

__all__ = ["Problem", "Severity", "refuse_errors"]


class Severity(StrEnum):
    """Severity of a problem. Only an error stops a translation."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem.

    Attributes
    ----------
    code : str
        Stable code; `translator.problem_codes.CODES` has them all.
    severity : Severity
        Errors stop the translation.
    where : str
        JSON pointer into the document, or the name of a file.
    text : str
        What is wrong, naming the node, field or edge.
    hint : str
        What to do.
    """

    code: str
    severity: Severity
    where: str
    text: str
    hint: str = ""


def refuse_errors(problems: Iterable[Problem], *, name: str = "") -> None:
    """Raise `BadGraphError` with all problems if one of them is an error.

    Raises
    ------
    BadGraphError
        Names the first error and how many more there are.
    """
    found = tuple(problems)
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = errors[0]
        raise BadGraphError(
            f"{first.code} {first.text}{more}",
            problems=found,
            where=": ".join(part for part in (name, first.where) if part),
            hint=first.hint,
        )
