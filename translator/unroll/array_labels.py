"""The labels of the axes of array applications, as in einsum: ``vis: tcx, gains: tx -> tcx``.

Before the arrow are the inputs, port by port; after it the outputs. A port may be left out if there is only one. A
label is one letter, or there are blanks between them: ``vis: time channel -> channel``.
"""

import re
from collections.abc import Iterator

import msgspec

__all__ = ["BadLabelsError", "Labels", "parse_labels"]

_LABEL = re.compile(r"[^\W\d]\w*")
_SHOWN = 60


class BadLabelsError(ValueError):
    """Labels that cannot be read; `translator.unroll.array_blockwise` makes a finding of it."""


class Labels(msgspec.Struct, frozen=True):
    """Labels of the axes at each port.

    Attributes
    ----------
    inputs, outputs : dict
        Labels by the name of the port. An empty name is the only port.
    """

    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]


def parse_labels(text: str) -> Labels:
    """Return the labels of a field.

    Raises
    ------
    BadLabelsError
        There is not one arrow, a port is there twice, or a label is not a word or is there twice at a port.

    Examples
    --------
    >>> parse_labels("vis: tc, gains: t -> c").inputs
    {'vis': ('t', 'c'), 'gains': ('t',)}
    """
    sides = text.split("->")
    if len(sides) != 2:  # noqa: PLR2004 - inputs and outputs
        raise BadLabelsError("there is not exactly one '->' between inputs and outputs")
    inputs = dict(_ports(sides[0], "inputs")) if sides[0].strip() else {}
    return Labels(inputs, dict(_ports(sides[1], "outputs")))


def _ports(text: str, side: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    seen: set[str] = set()
    parts = text.split(",")
    for part in parts:
        port, colon, axes = part.rpartition(":")
        port = port.strip()
        if len(parts) > 1 and not (colon and port):
            raise BadLabelsError(f"of several {side}, {part.strip()[:_SHOWN]!r} does not name its port")
        if port in seen:
            raise BadLabelsError(f"the port {port[:_SHOWN]!r} is there twice")
        seen.add(port)
        yield port, _labels(axes)


def _labels(text: str) -> tuple[str, ...]:
    words = text.split()
    labels = words if len(words) > 1 else list("".join(words))
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise BadLabelsError(f"{label[:_SHOWN]!r} is not a label: use letters, or words with blanks between them")
    if len(set(labels)) < len(labels):
        raise BadLabelsError(f"a label is twice in {text.strip()[:_SHOWN]!r}")
    return tuple(labels)
