"""Parameters that all applications share: their fields in palettes, types, defaults and descriptions.

The parameters that all data classes share are in `dropflow.data.data_parameters`.
"""

from dropflow.engine.component import Parameter
from dropflow.engine.time_limit import TIMEOUT

__all__ = ["COMMON_APP"]

_LOG_LEVELS = ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

COMMON_APP: tuple[Parameter, ...] = (
    Parameter(
        name="execution_time",
        type="Float",
        default=5.0,
        minimum=0.0,
        parameter_type="ConstraintParameter",
        description="How long one attempt takes, in seconds, for the partitioner.",
    ),
    Parameter(
        name="num_cpus",
        type="Integer",
        default=1,
        minimum=1,
        parameter_type="ConstraintParameter",
        description="Cores that one attempt keeps busy. Attempts that run together on a node need at most its cores.",
    ),
    Parameter(
        name="memory",
        type="String",
        default="",
        parameter_type="ConstraintParameter",
        description="Memory that one attempt needs, such as 2 GiB or a number of bytes; empty if that does not matter. "
        "Attempts that run together on a node need at most its memory.",
    ),
    Parameter(
        name="group_start",
        type="Boolean",
        default=False,
        parameter_type="ComponentParameter",
        description="Starts the body of the enclosing loop or group.",
    ),
    Parameter(
        name="input_error_threshold",
        type="Float",
        default=0,
        minimum=0,
        maximum=100,
        parameter_type="ComponentParameter",
        description="Percentage of failed inputs with which it still runs.",
    ),
    Parameter(
        name="n_tries",
        type="Integer",
        default=1,
        minimum=1,
        parameter_type="ComponentParameter",
        description="How often it is attempted before it counts as failed.",
    ),
    TIMEOUT,
    Parameter(
        name="block_skip",
        type="Boolean",
        default=False,
        parameter_type="ComponentParameter",
        description="Skip it only when all its inputs were skipped.",
    ),
    Parameter(
        name="log_level",
        type="Select",
        default="NOTSET",
        options=_LOG_LEVELS,
        parameter_type="ComponentParameter",
        description="Least severe messages that go into its log.",
    ),
)
"""Parameters of every application, besides its own."""
