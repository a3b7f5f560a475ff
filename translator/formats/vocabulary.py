"""The words of all generations of graphs: categories, names of parameters, kinds of fields, and what they are now."""

import re
from collections.abc import Iterator, Mapping

from translator.logical import NodeKind

__all__ = [
    "CONTROL",
    "KINDS",
    "PARAMETER_TYPES",
    "RENAMED_CATEGORIES",
    "UNDECIDED",
    "USAGES",
    "canonical_category",
    "canonical_class",
    "canonical_names",
    "fold",
]

_APPS = {
    "DALiuGEApp",
    "PyFuncApp",
    "BashShellApp",
    "DynlibApp",
    "DynlibProcApp",
    "Docker",
    "Singularity",
    "PythonMemberFunction",
    "DynlibMemberFunction",
    "DynlibObject",
    "UnknownApplication",
    "Mpi",
    "Branch",
}
_STORES = {"File", "Directory", "NGAS", "S3", "Data", "Memory", "SharedMemory", "json", "null"}
_DATA = _STORES | {"PythonObject", "ParameterSet", "Plasma", "PlasmaFlight", "RDBMS"}
_CONSTRUCTS = {"Scatter", "Gather", "GroupBy", "Loop", "SubGraph", "MKN", "ExclusiveForceNode", "Service"}

KINDS: Mapping[str, NodeKind] = {
    **dict.fromkeys(_APPS, NodeKind.APP),
    **dict.fromkeys(_DATA, NodeKind.DATA),
    **dict.fromkeys(_CONSTRUCTS, NodeKind.CONSTRUCT),
    "Comment": NodeKind.NOTE,
    "Start": NodeKind.NOTE,
    "End": NodeKind.NOTE,
    "GlobalVariables": NodeKind.GLOBALS,
}
"""What a node of each category is."""

RENAMED_CATEGORIES: Mapping[str, str] = {
    "SplitData": "Scatter",
    "Description": "Comment",
    "EnvironmentVariables": "GlobalVariables",
    "GlobalVariable": "GlobalVariables",
    "Variables": "GlobalVariables",
    "Component": "DALiuGEApp",
    "PythonApp": "DALiuGEApp",
}
"""Categories of older files and what they are called now; `canonical_category` knows the exceptions."""

UNDECIDED = frozenset({"", "Unknown", "None"})
"""Categories that say nothing: what such a node is must be told by its other attributes and its neighbours."""

CONTROL = frozenset({"Start", "End"})
"""Nodes that steered the flow once; they have no meaning any more, and their links go with them."""

USAGES: Mapping[str, str] = {usage.lower(): usage for usage in ("NoPort", "InputPort", "OutputPort", "InputOutput")}
"""Spellings of the usage of a field."""

PARAMETER_TYPES: Mapping[str, str] = {
    **{
        f"{short}{long}".lower(): f"{short}{full}"
        for short, full in (
            ("Component", "Parameter"),
            ("Application", "Argument"),
            ("Constraint", "Parameter"),
            ("Construct", "Parameter"),
        )
        for long in ("", "Parameter", "Argument")
    },
    "unknown": "ComponentParameter",
}
"""Spellings of the kind of a parameter: today's, V4's short ones, and mixtures."""

_FUNCTION_CLASS = "PyFuncApp"
_SEPARATORS = re.compile(r"[\s_.-]+")
_CATEGORIES = {name.lower(): name for name in (*KINDS, *RENAMED_CATEGORIES)}


def fold(name: str) -> str:
    """`name` without case and separators: ``Execution time``, ``execution_time`` and ``ExecutionTime`` are one."""
    return _SEPARATORS.sub("", name).lower()


_APP_CLASS = {fold(old): "dropclass" for old in ("appclass", "Application class", "dropclass")}
_DATA_CLASS = {fold(old): "dropclass" for old in ("dataclass", "Data class", "dropclass")}
_APP_NAMES: Mapping[str, str] = {
    **_APP_CLASS,
    **{fold(name): name for name in ("execution_time", "num_cpus", "group_start", "group_end", "n_tries")},
    **{fold(name): name for name in ("input_error_threshold", "n_effective_inputs")},
    fold("No. of CPUs"): "num_cpus",
    fold("Number of CPUs"): "num_cpus",
    fold("Number of tries"): "n_tries",
    fold("Number of effective inputs"): "n_effective_inputs",
    fold("Input error rate (%)"): "input_error_threshold",
    fold("Input error threshold (%)"): "input_error_threshold",
    fold("Input error threshold (0 and 100)"): "input_error_threshold",
}
_DATA_NAMES: Mapping[str, str] = {
    **_DATA_CLASS,
    **{fold(name): name for name in ("data_volume", "group_start", "group_end", "block_skip", "persist", "streaming")},
}
_FUNCTION_NAMES = {fold("Function name"): "func_name", fold("func_name"): "func_name"}
_BY_CATEGORY: Mapping[str, Mapping[str, str]] = {
    "Scatter": {
        fold(old): "num_of_copies" for old in ("num_of_copies", "num_of_splits", "Number of copies", "Number of splits")
    },
    "Gather": {fold(old): "num_of_inputs" for old in ("num_of_inputs", "Number of inputs")},
    "GroupBy": {
        **{fold(old): "num_of_inputs" for old in ("num_of_inputs", "Number of inputs")},
        fold("group_key"): "group_key",
    },
    "Loop": {
        fold(old): "num_of_iter"
        for old in ("num_of_iter", "Number of iterations", "Number of loops", "Number loops", "num_of_iterations")
    },
    "Mpi": {fold(old): "num_of_procs" for old in ("num_of_procs", "Number of processes")},
    "PyFuncApp": _FUNCTION_NAMES,
    "Branch": _FUNCTION_NAMES,
}


def canonical_names(category: str, kind: NodeKind) -> Iterator[Mapping[str, str]]:
    """Tables from folded to canonical names of the parameters that the translator reads from such a node."""
    if kind is NodeKind.APP:
        yield _APP_NAMES
    elif kind is NodeKind.DATA:
        yield _DATA_NAMES
    if category in _BY_CATEGORY:
        yield _BY_CATEGORY[category]


def canonical_category(category: str, dropclass: str) -> str:
    """Today's name of a category; itself where it is not known. The class decides what a general application is."""
    known = _CATEGORIES.get(category.lower(), category)
    if known in ("PythonApp", "Component") and dropclass.rpartition(".")[2] == _FUNCTION_CLASS:
        return _FUNCTION_CLASS
    return RENAMED_CATEGORIES.get(known, known)


def canonical_class(dropclass: str) -> str:
    """The name of a class as it is spelled today; empty where an old spelling only means that none was given."""
    dropclass = dropclass.strip()
    if dropclass == "test.graphsRepository":
        return ""
    if dropclass.startswith("dfms."):
        return f"dlg.{dropclass.removeprefix('dfms.')}"
    return f"dlg.{dropclass}" if dropclass.startswith("apps.") else dropclass
