"""What applications declare that they need."""

import pytest
from msgspec.structs import replace

from dropflow.graph.templates import Argument, Kind, ResourceNeeds, Template, needs_of


@pytest.mark.parametrize(
    ("name", "value", "memory"),
    [
        ("memory", "2 GiB", 2 * 1024**3),
        ("mem_usage", 1000, 1000.0),
        ("memory", "", 0.0),
        ("memory", "plenty", 0.0),
        ("memory", -5, 0.0),
        ("other", 1000, 0.0),
    ],
)
def test_memory_is_a_size_or_none(name: str, value: object, memory: float) -> None:
    """Memory is a number of bytes or a size with a unit; anything else counts as none."""
    template = Template(key="a", name="a", kind=Kind.APP, arguments=(Argument(name=name, value=value),))

    assert needs_of(template).memory == memory


def test_memory_counts_as_an_argument_of_the_application_too() -> None:
    """Editors make new fields of an application its arguments; a port of that name declares nothing."""
    field = Argument(name="memory", value="2 GiB", parameter_type="ApplicationArgument")

    assert needs_of(Template(key="a", name="a", kind=Kind.APP, arguments=(field,))).memory == 2 * 1024**3
    port = replace(field, usage="InputPort")
    assert needs_of(Template(key="a", name="a", kind=Kind.APP, arguments=(port,))).memory == 0


@pytest.mark.parametrize(("cpus", "needed"), [(1, 1), (4, 4), (0, 1), (-2, 1)])
def test_an_application_needs_at_least_one_processor(cpus: int, needed: int) -> None:
    """Fewer than one processor counts as one."""
    assert needs_of(Template(key="a", name="a", kind=Kind.APP, cpus=cpus)).cpus == needed


def test_data_needs_one_processor() -> None:
    """Initial contents are written by one processor, whatever fields the data has."""
    template = Template(key="a", name="a", kind=Kind.DATA, cpus=3, arguments=(Argument(name="memory", value="1 GB"),))

    assert needs_of(template) == ResourceNeeds()
