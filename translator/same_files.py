"""Finds files and directories that several drops would write, each replacing the content of another."""

from collections.abc import Iterator, Mapping, Sequence

from dropflow.data.registry import store_for
from dropflow.errors import DropflowError
from dropflow.failure import Problem
from dropflow.graph.order import Precedence
from dropflow.graph.templates import Kind, Link, Template
from translator.problem_codes import problem

_HINT = "put {auto} or {uid} into the name, so that each drop has its own; or collect first and write once"


def same_files(
    templates: Sequence[Template], links: Sequence[Link], where: Mapping[str, str] | None = None
) -> list[Problem]:
    """Return LG085 for every file that several drops write without waiting for each other.

    Parameters
    ----------
    templates, links : sequences
        Templates and links of the physical graph.
    where : mapping of str to str, optional
        JSON pointer of each node in its file, by key.
    """
    written = {link.target for link in links if templates[link.target].kind is Kind.DATA}
    names = {row: name for row in sorted(written) if (name := _name(templates[row]))}
    if not names:
        return []
    order, places = Precedence(templates, links), where or {}
    return [
        problem(
            "LG085",
            text,
            where=places.get(templates[row].key, "") or places.get(templates[row].origin, ""),
            hint=_HINT,
        )
        for row, text in (*_alone(templates, names, order), *_in_pairs(templates, names, order))
    ]


def _name(template: Template) -> str:
    try:
        return store_for(template).shared_name
    except DropflowError:
        return ""  # the check of components reports the error


def _alone(templates: Sequence[Template], names: Mapping[int, str], order: Precedence) -> Iterator[tuple[int, str]]:
    """Yield nodes whose drops, with one different index, do not wait for each other."""
    for row, name in names.items():
        shape = templates[row].shape
        first = (0,) * len(shape)
        for at, axis in enumerate(templates[row].axes):
            second = tuple(int(other == at) for other in range(len(shape)))
            if axis.size > 1 and not order.holds(row, first, row, second):
                yield row, f"{axis.size} drops of {templates[row].name!r} write one file, {name}"
                break


def _in_pairs(templates: Sequence[Template], names: Mapping[int, str], order: Precedence) -> Iterator[tuple[int, str]]:
    """Yield each node that does not wait for one of those before it, or that one for it, with that node.

    Nodes that wait for each other are kept in their order, so that a node is not compared with all of them.
    """
    by_name: dict[str, list[int]] = {}
    for row, name in names.items():
        by_name.setdefault(name, []).append(row)
    for name, rows in by_name.items():
        chain: list[int] = []
        for other in rows:
            second = (0,) * len(templates[other].axes)
            low, high = 0, len(chain)
            while low < high:
                middle = high - 1 if high == len(chain) else (low + high) // 2  # files name most nodes in their order
                one = chain[middle]
                first = (0,) * len(templates[one].axes)
                if order.holds(one, first, other, second):
                    low = middle + 1
                elif order.holds(other, second, one, first):
                    high = middle
                else:
                    yield other, f"{templates[one].name!r} and {templates[other].name!r} write one file, {name}"
                    break
            else:
                chain.insert(low, other)
