"""Parameters that all applications share: their fields in palettes, types, defaults and descriptions.

The parameters that all data classes share are in `dropflow.data.store`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from dropflow.apps.app_interface import InputData
from dropflow.graph.components import TIMEOUT, Parameter, is_empty
from dropflow.graph.templates import DEFAULT_TRIES, GPU_FIELD, Argument
from dropflow.states import DropState

_LOG_LEVELS = ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

DETERMINISTIC = Parameter(
    name="deterministic",
    type="Boolean",
    default=True,
    parameter_type="ComponentParameter",
    description="Whether its outputs follow from its inputs and parameters alone. Otherwise it always runs, also with "
    "--reuse.",
)
NOT_DETERMINISTIC = msgspec.structs.replace(DETERMINISTIC, default=False)
"""Parameter for components whose outputs depend on time, chance, the network, or files that are not in the graph."""

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
        name=GPU_FIELD,
        type="Integer",
        default=0,
        minimum=0,
        parameter_type="ConstraintParameter",
        description="GPUs that one attempt has to itself, in CUDA_VISIBLE_DEVICES. It runs on nodes that have as many.",
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
        default=DEFAULT_TRIES,
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
    DETERMINISTIC,
    Parameter(
        name="reuse_ignore",
        type="String",
        default="",
        parameter_type="ComponentParameter",
        description="Names of parameters that do not change its outputs, such as a verbosity, separated by commas: "
        "--reuse takes results that were computed with other values of these.",
    ),
)
"""Parameters of every application, besides its own."""

ENVIRONMENT_PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="run_in",
        parameter_type="ComponentParameter",
        description="Image in which a Python function or a command runs, such as quay.io/group/program:1.2.",
    ),
    Parameter(
        name="environment",
        parameter_type="ComponentParameter",
        description='Variables of a function or a command: JSON such as {"LEVEL": "2", "TOKEN": "secret:TOKEN"}, where '
        "secret:NAME is a secret of the host.",
    ),
    Parameter(
        name="modules",
        parameter_type="ComponentParameter",
        description="Modules that 'module load' gives to a function or a command, such as gcc/12 casacore.",
    ),
    Parameter(
        name="virtual_environment",
        parameter_type="ComponentParameter",
        description="Directory of the virtual or conda environment of a function or a command.",
    ),
)
"""Further parameters of functions and commands; see `dropflow.apps.runtime_environment`."""


_REASONS = {DropState.ERROR: "failed", DropState.SKIPPED: "skipped", DropState.CANCELLED: "cancelled"}
_OPEN = "not complete"
"""State of inputs that the application did not wait for, because of `n_effective_inputs`."""

# Texts about inputs without content: how many failed, were skipped, or are not complete.


def describe_state(state: DropState) -> str:
    """Return a text about an input in `state`: ``failed``, ``was skipped``..."""
    return _verb(_REASONS.get(state, _OPEN), 1)


def describe_missing(inputs: Sequence[InputData]) -> str:
    """Count the inputs without content by reason, such as ``1 of 3 inputs failed, 1 was skipped``."""
    counts = Counter(_REASONS.get(data.state, _OPEN) for data in inputs if not data.ok)
    (reason, count), *others = sorted(counts.items())
    if len(inputs) == 1:
        return f"the only input {_verb(reason, 1)}"
    first = f"{count} of {len(inputs)} inputs {_verb(reason, count)}"
    return ", ".join((first, *(f"{count} {_verb(reason, count)}" for reason, count in others)))


def _verb(reason: str, count: int) -> str:
    if reason == "failed":
        return reason
    return f"{'was' if count == 1 else 'were'} {reason}"


def is_event(arguments: Mapping[str, Argument], port: str) -> bool:
    """Return whether `port` carries no data and only orders drops."""
    argument = arguments.get(port)
    return argument is not None and argument.type.lower() == "event"


def encoding_of(arguments: Mapping[str, Argument], port: str, parser: str) -> str | None:
    """Return the encoding of `port`: its own, else that of the older `parser` field, else None (the default)."""
    argument = arguments.get(port)
    if argument is not None and argument.encoding:
        return argument.encoding
    old = arguments.get(parser)
    return str(old.value) if old is not None and not is_empty(old.value) else None
