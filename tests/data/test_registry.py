"""The components for classes of data."""

import json
import re
from collections.abc import Callable

import pytest

from dropflow.apps.component_findings import check
from dropflow.data.registry import DATA_COMPONENTS, component_for, store_for
from dropflow.errors import MissingDependencyError, UnknownComponentError
from dropflow.graph.templates import Kind, Template
from tests.corpus import corpus_files, needs_corpus

Node = Callable[..., Template]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dlg.data.drops.s3_drop.S3DROP", "S3"),
        ("dlg.data.drops.ngas.NgasDROP", "NGAS"),
        ("dlg.data.drops.rdbms.RDBMSDrop", "RDBMS"),
        ("dlg.data.drops.plasma.PlasmaDROP", "SharedMemory"),
        ("dlg.data.drops.memory.InMemoryDROP", "Memory"),
        ("dlg.data.drops.InMemoryDROP", "Memory"),
        ("dlg.drop.InMemoryDROP", "Memory"),
        ("dfms.drop.FileDROP", "File"),
        ("dlg.some.older.place.FileDROP", "File"),
        ("dlg.data.drops.memory.SharedMemoryDROP", "SharedMemory"),
        ("dlg.data.drops.memory.PythonObjectDROP", "PythonObject"),
        ("dlg.data.drops.directory.DirectoryDROP", "Directory"),
        ("dlg.data.drops.data_base.NullDROP", "NULL"),
        ("dlg.data.drops.data_base.EndDROP", "End"),
        ("dlg.data.drops.json_drop.JsonDROP", "JSON"),
        ("dlg.data.drops.parset_drop.ParameterSetDROP", "ParameterSet"),
    ],
)
def test_every_class_has_one_component(node: Node, name: str, expected: str) -> None:
    """Every class name of DALiuGE, new and old, has one component, independent of the category."""
    assert component_for(node(name, category="Memory")).name == expected


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("Memory", "Memory"),
        ("File", "File"),
        ("SharedMemory", "SharedMemory"),
        ("null", "NULL"),
        ("NGAS", "NGAS"),
        ("Plasma", "SharedMemory"),
    ],
)
def test_nodes_without_a_class_use_their_category(node: Node, category: str, expected: str) -> None:
    """A node without class name has the component of its category."""
    assert component_for(node(category=category)).name == expected


@pytest.mark.parametrize("name", ["dlg.data.drops.container.ContainerDROP", "dlg.data.drops.iceberg.IcebergTableDrop"])
def test_unsupported_classes_of_daliuge_have_an_alternative(node: Node, name: str) -> None:
    """A class of DALiuGE that is not supported is reported as such, with an alternative."""
    with pytest.raises(MissingDependencyError, match="does not support") as caught:
        store_for(node(name))
    assert "File" in caught.value.hint


def test_unknown_classes_are_named(node: Node) -> None:
    """An unknown class is an error with the node, the class and the nearest known one."""
    with pytest.raises(UnknownComponentError, match=r"'the data'.*'dlg.data.drops.memory.InMemoryDRP'") as caught:
        store_for(node("dlg.data.drops.memory.InMemoryDRP"))
    assert "InMemoryDROP" in caught.value.hint


def test_all_errors_are_reported_together(node: Node) -> None:
    """One call reports all unknown classes and bad parameters."""
    nodes = [
        node("no.such.Class"),
        node("dlg.data.drops.memory.InMemoryDROP"),
        node("dlg.data.drops.file.FileDROP", filepath="{nonsense}"),
        node("dlg.data.drops.file.FileDROP", check_filepath_exists="perhaps"),
        node(category="IcebergTable"),
    ]
    found = check(nodes, ())

    assert [problem.code for problem in found] == ["DF103", "DF104", "DF104", "DF106"]
    assert all(problem.hint for problem in found)


def test_every_class_is_valid_with_its_defaults(node: Node) -> None:
    """A node of each class with default parameters has no problems, if it has an address."""
    given = {"url": "file:///x", "Bucket": "b", "pattern": "*"}
    nodes = [node(one.dropclass, **given) for one in DATA_COMPONENTS if one.name != "RDBMS"]
    nodes.append(node("dlg.data.drops.rdbms.RDBMSDrop", dbtable="t"))
    assert check(nodes, ()) == []


def test_names_are_unique() -> None:
    """No two components have the same class name."""
    names = [name for component in DATA_COMPONENTS for name in (component.dropclass, *component.aliases)]

    assert len(set(names)) == len(names)
    assert all(
        component.kind is Kind.DATA and component.ports and component.description for component in DATA_COMPONENTS
    )


@needs_corpus
def test_every_data_class_of_the_community_is_known(node: Node) -> None:
    """Each class name in graphs of the community has a component or is listed as not supported."""
    names = {
        name
        for path in corpus_files()
        for name in re.findall(r'"(?:dlg|dfms)\.(?:data\.)?drops?\.[\w.]+"', path.read_text(encoding="utf-8"))
    }
    assert names
    refused = set()
    for name in names:
        try:
            component_for(node(json.loads(name)))
        except MissingDependencyError:
            refused.add(json.loads(name).rpartition(".")[2])
    assert refused <= {"ContainerDROP"}
