"""Causes: failures with the same text."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.records import FailureInfo
from dropflow.web.cause_groups import causes


def failure(drop: int, name: str, text: str, count: int) -> FailureInfo:
    """Return a failure of a drop."""
    return FailureInfo(drop=str(drop), name=name, node="n", code="DF105", kind="E", text=text, count=count)


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 9)), max_size=30
    )
)
def test_nothing_is_lost_and_the_worst_comes_first(rows: list[tuple[int, str, str, int]]) -> None:
    """Each failure is in exactly one cause, those of a cause have the same text, and the largest cause is first."""
    failures = [failure(*row) for row in rows]
    found = causes(failures)
    members = [member for cause in found for member in (cause.first, *cause.rest)]

    assert sorted(members, key=repr) == sorted(failures, key=repr)
    assert len(found) == len({(name, text) for _, name, text, _ in rows})
    assert [cause.count for cause in found] == sorted((cause.count for cause in found), reverse=True)
    assert sum(cause.count for cause in found) == sum(count for *_, count in rows)


def test_each_lost_node_is_a_cause() -> None:
    """Two lost nodes are two causes, although their texts are the same."""
    lost = failure(1, "a", "silent for 12 s", 5)
    nodes = [msgspec.structs.replace(lost, drop="", node=node) for node in ("n1", "n2")]

    assert len(causes(nodes)) == 2


def test_texts_that_differ_in_numbers_are_one_cause() -> None:
    """The cause has the text of all, with a placeholder for each number that differs, and those that are equal."""
    texts = [f"antenna {n} flagged: 18 drops of {n * 0.5e-3:g} Jy at -{n}.5" for n in (3, 4, 1_000)]
    (found,) = causes([failure(n, "a", text, 1) for n, text in enumerate(texts)])

    assert found.text == "antenna {n} flagged: 18 drops of {n} Jy at {n}"
    assert found.first.text == texts[0]
    assert [one.text for one in found.rest] == texts[1:]
    assert found.is_varied


def test_failures_of_logical_nodes_that_are_numbered_are_one_cause() -> None:
    """A program that writes a physical graph names a node per drop: the cause has the name without its number."""
    found = causes(
        [failure(n, name, f"antenna {n} flagged", 2) for n, name in enumerate(["flag 1 of x", "flag 2 of x", "fit"])]
    )

    assert [(cause.name, cause.text, cause.count) for cause in found] == [
        ("flag {n} of x", "antenna {n} flagged", 4),
        ("fit", "antenna 2 flagged", 2),
    ]


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("no file 7", "no file 7", True),
        ("1,024 bytes", "12 bytes", True),
        ("-3.2e-5 Jy", "1 Jy", True),
        ("<a at 0x7f3a>", "<a at 0x11>", True),
        ("shape (1, 2)", "shape (1, 2, 3)", False),
        ("file a1.ms", "file b1.ms", False),
        ("7", "seven", False),
    ],
)
def test_only_numbers_may_differ(one: str, other: str, *, are_alike: bool) -> None:
    """Texts with different words, or more numbers, are different causes, and equal texts are shown as they are."""
    found = causes([failure(1, "a", one, 1), failure(2, "a", other, 1)])

    assert (len(found) == 1) is are_alike
    assert found[0].is_varied is (are_alike and one != other)
    assert (found[0].text == one) is (one == other or not are_alike)


@given(st.text(), st.text())
def test_any_text_can_be_grouped(one: str, other: str) -> None:
    """Texts may have any characters, such as digits of other scripts and the placeholder itself."""
    assert all(cause.text for cause in causes([failure(1, "a", one or "x", 1), failure(2, "a", other or "x", 1)]))
