"""The copy of a logical graph that sessions keep."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.codec import digest, dump, parse
from dropflow.graph.notes import LOGICAL as META
from dropflow.graph.notes import LogicalNote, logical_of, note_logical, with_more_settings
from dropflow.testing.drawing import fan


@given(st.binary(max_size=2000), st.none() | st.text(max_size=5), st.lists(st.text(max_size=9)))
def test_the_copy_survives_a_graph_file(document: bytes, configuration: str | None, settings: list[str]) -> None:
    """File, configuration and settings are read again as they were; the digest of the graph does not change."""
    plain = fan(4)
    graph = replace(plain, meta={META: note_logical(document, configuration=configuration, settings=settings)})
    again = parse(b"".join(bytes(buffer) for buffer in dump(graph)))

    assert logical_of(again) == LogicalNote(
        document=document, configuration=configuration or "", settings=tuple(settings)
    )
    assert digest(again) == digest(plain)


def test_a_graph_without_a_copy_has_none() -> None:
    """Nor has one whose copy is damaged, or would be too large."""
    assert logical_of(fan(4)) is None
    for damaged in ("", "{}", '{"zlib": "AAAA"}', "x"):
        assert logical_of(replace(fan(4), meta={META: damaged})) is None
    assert note_logical(bytes(17 << 20), configuration=None, settings=()) == ""


def test_new_settings_replace_those_of_the_same_parameter() -> None:
    """A parameter of the graph has one name with and without ``global``; values of a mapping are written as texts."""
    known = ("global.n=3", "Scatter.copies=2", "Work.f=[1]")

    assert with_more_settings(known, ["n=4"]) == ("Scatter.copies=2", "Work.f=[1]", "n=4")
    note = note_logical(b"{}", configuration=None, settings={"n": 3, "Work.f": [1], "t": "x"})
    found = logical_of(replace(fan(4), meta={META: note}))
    assert found is not None
    assert found.settings == ("n=3", "Work.f=[1]", "t=x")
