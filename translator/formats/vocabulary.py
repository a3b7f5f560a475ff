"""Names in files of all versions: categories, parameters and kinds of fields, with their canonical names."""

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
"""Kind of the nodes of each category."""

RENAMED_CATEGORIES: Mapping[str, str] = {
    "SplitData": "Scatter",
    "Description": "Comment",
    "EnvironmentVariables": "GlobalVariables",
    "GlobalVariable": "GlobalVariables",
    "Variables": "GlobalVariables",
    "Component": "DALiuGEApp",
    "PythonApp": "DALiuGEApp",
}
"""Categories of older files and their canonical names; `canonical_category` has the exceptions."""

UNDECIDED = frozenset({"", "Unknown", "None"})
"""Undecided categories: the kind of a node follows from its other attributes and its neighbours."""

CONTROL = frozenset({"Start", "End"})
"""Control nodes of old files, which are not used any more; their links are ignored."""

USAGES: Mapping[str, str] = {usage.lower(): usage for usage in ("NoPort", "InputPort", "OutputPort", "InputOutput")}
"""Usages of fields by their names in lower case."""

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
"""Kinds of parameters by their names in lower case: full names, the short ones of V4, and mixtures."""

_FUNCTION_CLASS = "PyFuncApp"
_SEPARATORS = re.compile(r"[\s_.-]+")
_CATEGORIES = {name.lower(): name for name in (*KINDS, *RENAMED_CATEGORIES)}


def fold(name: str) -> str:
    """Return `name` in lower case without separators: equal for ``Execution time`` and ``ExecutionTime``."""
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
    """Yield tables from folded to canonical names of the parameters of such a node."""
    if kind is NodeKind.APP:
        yield _APP_NAMES
    elif kind is NodeKind.DATA:
        yield _DATA_NAMES
    if category in _BY_CATEGORY:
        yield _BY_CATEGORY[category]


def canonical_category(category: str, dropclass: str) -> str:
    """Return the canonical name of a category. Of general applications it depends on the class."""
    known = _CATEGORIES.get(category.lower(), category)
    if known in ("PythonApp", "Component") and dropclass.rpartition(".")[2] == _FUNCTION_CLASS:
        return _FUNCTION_CLASS
    return RENAMED_CATEGORIES.get(known, known)


def canonical_class(dropclass: str) -> str:
    """Return the canonical name of a class; empty for old placeholders of a missing class."""
    dropclass = dropclass.strip()
    if dropclass == "test.graphsRepository":
        return ""
    if dropclass.startswith("dfms."):
        return f"dlg.{dropclass.removeprefix('dfms.')}"
    return f"dlg.{dropclass}" if dropclass.startswith("apps.") else dropclass
