"""Warnings about files that several drops would write."""

import pytest

from dropflow.failure import Problem
from tests.translator.drawing import Drawing
from translator.pipeline import same_files
from translator.unroll import plan


def found(drawing: Drawing) -> list[Problem]:
    """Return the findings about the files of a drawing."""
    planned = plan(drawing.graph())
    return same_files(planned.templates, planned.links, {"f": "/nodeDataArray/7"})


def in_scatter(filepath: str, *, copies: int = 3, category: str = "File") -> Drawing:
    """A file or directory that each copy of a scatter writes."""
    drawing = Drawing()
    field = "dirname" if category == "Directory" else "filepath"
    with drawing.scatter("S", copies):
        drawing.app("work").data("f", category, **{field: filepath})
    return drawing.link("work", "f")


def test_one_file_in_a_scatter_is_reported() -> None:
    """The warning has the number of drops, the file, the place of the node and a hint."""
    (problem,) = found(in_scatter("sub/same.txt"))

    assert (problem.code, problem.severity.value, problem.where) == ("LG085", "warning", "/nodeDataArray/7")
    assert problem.text == "3 drops of 'f' write one file, sub/same.txt"
    assert "{auto} or {uid}" in problem.hint


@pytest.mark.parametrize("filepath", ["", "None", "a_{uid}.txt", "{humanKey}", "{auto}", "sub/", "$NOT_SET_ANYWHERE/x"])
def test_distinct_files_give_no_warning(filepath: str) -> None:
    """Names that differ between drops, or that are not known yet, give no warning."""
    assert found(in_scatter(filepath)) == []


def test_directories_and_absolute_names_are_checked() -> None:
    """Placeholders that are the same for all drops do not help; one copy writes alone."""
    assert [one.code for one in found(in_scatter("/there/x_{{}}_{dlg}"))] == ["LG085"]
    assert [one.code for one in found(in_scatter("/there/x", category="Directory"))] == ["LG085"]
    assert found(in_scatter("x", copies=1)) == []


def test_two_nodes_that_do_not_wait_for_each_other_are_reported() -> None:
    """One that reads the file and writes it again is fine, and so is one that only reads it."""
    drawing = Drawing().app("A").app("B").data("f", "File", filepath="x").data("g", "File", filepath="./x")
    drawing.link("A", "f").link("B", "g")
    assert [one.text for one in found(drawing)] == ["'f' and 'g' write one file, x"]

    drawing.link("f", "B")
    assert found(drawing) == []

    reading = Drawing().app("A").app("B").data("f", "File", filepath="x").data("g", "File", filepath="x").data("h")
    assert found(reading.link("A", "f").link("g", "B", "h")) == []


def test_iterations_of_a_loop_may_write_one_file() -> None:
    """Iterations that wait for each other may write one file; others give a warning."""
    for carries in (True, False):
        drawing = Drawing()
        with drawing.loop("L", 3):
            drawing.app("work", group_start=True).data("f", "File", filepath="x").data("e", group_end=True)
        drawing.link("work", "f")
        drawing.link("f", "work", closes=True) if carries else drawing.link("work", "e")
        assert [one.code for one in found(drawing)] == ([] if carries else ["LG085"])
