"""Old names of parameters are replaced, on nodes for which the present names have a meaning."""

import pytest

from translator.formats.vocabulary import KINDS, canonical_category, canonical_class, canonical_fields
from translator.logical import Field, NodeKind


def _named(category: str, *names: tuple[str, object]) -> dict[str, object]:
    """Names and values of fields after migration."""
    fields = tuple(Field(id=str(place), name=name, value=value) for place, (name, value) in enumerate(names))
    return {field.name: field.value for field in canonical_fields(fields, category, KINDS[category], {})}


@pytest.mark.parametrize(
    ("category", "old", "new"),
    [
        ("Scatter", "num_of_splits", "num_of_copies"),
        ("Scatter", "Number of copies", "num_of_copies"),
        ("Scatter", "Number of Splits", "num_of_copies"),
        ("Gather", "Number of inputs", "num_of_inputs"),
        ("GroupBy", "number_of_inputs", "num_of_inputs"),
        ("Loop", "Number of Iterations", "num_of_iter"),
        ("Loop", "Number loops", "num_of_iter"),
        ("DALiuGEApp", "Execution Time", "execution_time"),
        ("DALiuGEApp", "execution time", "execution_time"),
        ("DALiuGEApp", "No. of CPUs", "num_cpus"),
        ("DALiuGEApp", "Num CPUs", "num_cpus"),
        ("DALiuGEApp", "Number of CPUs", "num_cpus"),
        ("DALiuGEApp", "Number of effective inputs", "n_effective_inputs"),
        ("DALiuGEApp", "Input error threshold (0 and 100)", "input_error_threshold"),
        ("DALiuGEApp", "Group start", "group_start"),
        ("DALiuGEApp", "Application Class", "dropclass"),
        ("DALiuGEApp", "Appclass", "dropclass"),
        ("DALiuGEApp", "Number of tries", "n_tries"),
        ("DALiuGEApp", "Input error rate (%)", "input_error_threshold"),
        ("PyFuncApp", "Function Name", "func_name"),
        ("Memory", "Data volume", "data_volume"),
        ("Memory", "Data class", "dropclass"),
        ("Memory", "Group End", "group_end"),
        ("Memory", "Persist", "persist"),
        ("Memory", "Streaming", "streaming"),
        ("Mpi", "num_of_procs", "num_of_procs"),
        # Where a name means nothing it is the user's own.
        ("DALiuGEApp", "Number of copies", "Number of copies"),
        ("Memory", "Execution time", "Execution time"),
        ("DALiuGEApp", "Persist", "Persist"),
    ],
)
def test_old_names_are_replaced(category: str, old: str, new: str) -> None:
    """Case, blanks, dashes and old display names do not matter for what the translator reads."""
    assert _named(category, (old, 1)) == {new: 1}


def test_a_present_name_has_priority_over_an_old_one() -> None:
    """Where a node has both, the field with the canonical name stays."""
    assert _named("Scatter", ("Number of copies", 2), ("num_of_copies", 3)) == {"num_of_copies": 3}


def test_an_old_name_with_a_value_has_priority_over_an_empty_field() -> None:
    """A canonical field without value gives way to an older one that has one."""
    assert _named("DALiuGEApp", ("dropclass", ""), ("appclass", "my.App")) == {"dropclass": "my.App"}


def test_ports_keep_their_names() -> None:
    """The name of a port is not replaced, even if it is an old name of a parameter."""
    port = Field(id="p", name="Group start", usage="InputPort")

    assert canonical_fields((port,), "DALiuGEApp", NodeKind.APP, {}) == (port,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dfms.apps.simple.CopyApp", "dlg.apps.simple.CopyApp"),
        ("apps.simple.CopyApp", "dlg.apps.simple.CopyApp"),
        ("test.graphsRepository", ""),
        (" my.App ", "my.App"),
        ("dlg.apps.simple.CopyApp", "dlg.apps.simple.CopyApp"),
    ],
)
def test_old_classes_are_renamed(old: str, new: str) -> None:
    """Old prefixes are replaced, and placeholders of a missing class become empty."""
    assert canonical_class(old) == new


@pytest.mark.parametrize(
    ("old", "dropclass", "new"),
    [
        ("SplitData", "", "Scatter"),
        ("memory", "", "Memory"),
        ("Description", "", "Comment"),
        ("EnvironmentVariables", "", "GlobalVariables"),
        ("PythonApp", "dlg.apps.pyfunc.PyFuncApp", "PyFuncApp"),
        ("PythonApp", "my.App", "DALiuGEApp"),
        ("Component", "", "DALiuGEApp"),
        ("scatter", "", "Scatter"),
        ("NoSuchThing", "", "NoSuchThing"),
    ],
)
def test_old_categories_are_renamed(old: str, dropclass: str, new: str) -> None:
    """Old categories are renamed, general applications by their class; unknown ones stay."""
    assert canonical_category(old, dropclass) == new
