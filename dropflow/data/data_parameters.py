"""Parameters and ports that the data classes share in the palette."""

from dropflow.data.replication import MOST_REPLICAS
from dropflow.engine.component import Parameter, Port

__all__ = ["IO", "common", "persist"]

IO = (Port(name="io", usage="InputOutput", description="What producers write and consumers read."),)
"""The port of a data drop. Graphs usually add ports named after the ports of their applications."""

_BLOCK_SKIP = Parameter(
    name="block_skip",
    type="Boolean",
    default=False,
    parameter_type="ComponentParameter",
    description="Pass a skip on only when all producers were skipped.",
)
_DATA_VOLUME = Parameter(
    name="data_volume",
    type="Float",
    default=5.0,
    minimum=0.0,
    parameter_type="ConstraintParameter",
    aliases=("Data volume",),
    description="Volume of the content, for the partitioner; any unit, the same in the whole graph.",
)
_GROUP_END = Parameter(
    name="group_end",
    type="Boolean",
    default=False,
    parameter_type="ComponentParameter",
    aliases=("Group end",),
    description="Ends the body of the enclosing loop.",
)
_REPLICAS = Parameter(
    name="replicas",
    type="Integer",
    default=0,
    minimum=0,
    maximum=MOST_REPLICAS,
    parameter_type="ComponentParameter",
    description="On how many nodes the content is to be, so that the loss of one does not lose it; 0 for what the "
    "session says. Sessions on one machine ignore it.",
)
_STREAMING = Parameter(
    name="streaming",
    type="Boolean",
    default=False,
    parameter_type="ComponentParameter",
    description="Consumers read the content while it is being written.",
)


def persist(default: bool) -> Parameter:  # noqa: FBT001 - the only argument
    """Return the parameter that keeps the content after its last consumer."""
    return Parameter(
        name="persist",
        type="Boolean",
        default=default,
        parameter_type="ComponentParameter",
        aliases=("precious",),
        description="Keep the content after its last consumer; results of leaf drops are always kept.",
    )


def common(*, persists: bool) -> tuple[Parameter, ...]:
    """Return the parameters of every data class; `persists` is the default of `persist`."""
    return (persist(persists), _BLOCK_SKIP, _DATA_VOLUME, _GROUP_END, _REPLICAS, _STREAMING)
