"""Names in files of all versions: categories, parameters and kinds of fields, with their canonical names."""

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from dropflow.failure import Problem, Severity
from dropflow.formatting import did_you_mean, plural
from dropflow.graph.components import fold
from translator.formats.json_document import NodeRecord, Records
from translator.logical import Field, NodeKind
from translator.problem_codes import problem

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
_CATEGORIES = {name.lower(): name for name in (*KINDS, *RENAMED_CATEGORIES)}
Nature = tuple[str, NodeKind]
"""Canonical category and kind of a node."""
_BY_TYPE = {
    "data": NodeKind.DATA,
    "datadrop": NodeKind.DATA,
    "service": NodeKind.DATA,
    "application": NodeKind.APP,
    "applicationdrop": NodeKind.APP,
}
_DATA_CLASSES = ("data", "drops")
_MOST_SUGGESTIONS = 100
"""Unknown categories of one file that are compared with the known ones for a suggestion."""


_APP_CLASS = {fold(old): "dropclass" for old in ("appclass", "Application class", "dropclass")}
_DATA_CLASS = {fold(old): "dropclass" for old in ("dataclass", "Data class", "dropclass")}
_APP_NAMES: Mapping[str, str] = {
    **_APP_CLASS,
    **{fold(name): name for name in ("execution_time", "num_cpus", "num_gpus", "group_start", "group_end", "n_tries")},
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


# Canonical names of fields, and of the classes in them.


def canonical_fields(
    fields: tuple[Field, ...], category: str, kind: NodeKind, switches: Mapping[str, bool]
) -> tuple[Field, ...]:
    """Return the fields of a node, with canonical names for those that the translator reads.

    Parameters
    ----------
    fields : tuple of Field
        The fields as in the file.
    category, kind : str, NodeKind
        Category and kind of the node: names depend on them.
    switches : mapping of str to bool
        Obsolete flags of the node (``streaming``, ``precious``), with the names of the fields that replaced them.

    Returns
    -------
    tuple of Field
        Ports keep their names. Of two fields with the same canonical name, the one with a value is kept, else the one
        that had this name in the file.
    """
    tables = tuple(canonical_names(category, kind))
    named = tuple(_renamed(field, tables) for field in fields)
    best = _best(fields, named)
    kept = tuple(field for place, field in enumerate(named) if best.get(field.name, place) == place or field.is_port)
    return (*kept, *_switched(kept, switches)) if kind is NodeKind.DATA else kept


def _renamed(field: Field, tables: tuple[Mapping[str, str], ...]) -> Field:
    if field.is_port:
        return field
    folded = fold(field.name)
    name = next((table[folded] for table in tables if folded in table), field.name)
    if name == "dropclass":
        value = canonical_class(field.value) if isinstance(field.value, str) else field.value
        default = canonical_class(field.default) if isinstance(field.default, str) else field.default
        return replace(field, name=name, value=value, default=default)
    return field if name == field.name else replace(field, name=name)


def _best(fields: tuple[Field, ...], named: tuple[Field, ...]) -> dict[str, int]:
    """Return the index of the field to keep for each name that a field got by renaming."""
    contested = {new.name for old, new in zip(fields, named, strict=True) if old.name != new.name}
    places: dict[str, list[int]] = {}
    for place, field in enumerate(named):
        if field.name in contested and not field.is_port:
            places.setdefault(field.name, []).append(place)

    def rank(place: int) -> tuple[bool, bool]:
        return named[place].effective in (None, ""), fields[place].name != named[place].name

    return {name: min(indices, key=rank) for name, indices in places.items()}


def _switched(fields: tuple[Field, ...], switches: Mapping[str, bool]) -> Iterator[Field]:
    names = {field.name for field in fields}
    for name, value in switches.items():
        if name not in names:
            yield Field(id=f"/{name}", name=name, value=value, type="Boolean")


# The kind of each node of a file: data, application, construct, variables or a note.


_CLASS_NAMES = frozenset(map(fold, ("dropclass", "appclass", "Application class", "dataclass", "Data class")))


def natures(records: Records, problems: list[Problem]) -> Mapping[str, Nature]:
    """Return category and kind of every node by its id.

    The kind follows from the category. If that is undecided (``Unknown``), it follows from the type of the category,
    then the class, then the neighbours, with a warning. An unknown category is an error.
    """
    by_id = {record.id: nature_of(record.category, record.fields) for record in records.nodes}
    undecided = [record for record in records.nodes if record.category in UNDECIDED]
    neighbours = _neighbours(records, by_id) if undecided else {}
    for record in undecided:
        by_id[record.id] = (record.category or "Unknown", _guess(record, neighbours.get(record.id, Counter())))
    _report(records, by_id, problems)
    return by_id


def nature_of(category: str, fields: tuple[Field, ...]) -> Nature:
    """Return canonical category and kind by the category alone; an unknown category is an application."""
    canonical = canonical_category(category, _class_of(fields))
    return canonical, KINDS.get(canonical, NodeKind.APP)


def _class_of(fields: tuple[Field, ...]) -> str:
    values = (str(field.effective or "") for field in fields if fold(field.name) in _CLASS_NAMES)
    return canonical_class(next((value for value in values if value), ""))


def _neighbours(records: Records, by_id: Mapping[str, Nature]) -> dict[str, Counter[NodeKind]]:
    unsure = {record.id for record in records.nodes if record.category in UNDECIDED}
    counts: dict[str, Counter[NodeKind]] = {}
    for link in records.links:
        for end, other in ((link.source, link.target), (link.target, link.source)):
            if end in unsure and other in by_id and other not in unsure:
                counts.setdefault(end, Counter())[by_id[other][1]] += 1
    return counts


def _guess(record: NodeRecord, neighbours: Counter[NodeKind]) -> NodeKind:
    """Return the kind of a node with an undecided category."""
    by_type = _BY_TYPE.get(record.category_type.lower())
    if by_type is not None:
        return by_type
    name = _class_of(record.fields)
    if name:
        is_data = name.lower().endswith("drop") or any(part in _DATA_CLASSES for part in name.lower().split("."))
        return NodeKind.DATA if is_data else NodeKind.APP
    return NodeKind.APP if neighbours[NodeKind.DATA] > neighbours[NodeKind.APP] else NodeKind.DATA


def _report(records: Records, by_id: Mapping[str, Nature], problems: list[Problem]) -> None:
    renamed: dict[tuple[str, str], list[NodeRecord]] = {}
    unknown: dict[str, str] = {}
    for record in records.nodes:
        category, kind = by_id[record.id]
        if record.category in UNDECIDED:
            problems.append(_undecided(record, kind))
        elif category not in KINDS:
            if record.category not in unknown:
                is_compared = len(unknown) < _MOST_SUGGESTIONS
                unknown[record.category] = did_you_mean(record.category, KINDS) if is_compared else ""
            problems.append(_unknown(record, unknown[record.category]))
        elif category != record.category:
            renamed.setdefault((record.category, category), []).append(record)
    for (old, new), nodes in renamed.items():
        text = f"category {old!r} of {plural(len(nodes), 'node')} is called {new!r} now; the first is {nodes[0].name!r}"
        problems.append(problem("LG031", text, where=f"{nodes[0].pointer}/category"))


def _undecided(record: NodeRecord, kind: NodeKind) -> Problem:
    return problem(
        "LG030",
        f"the category of node {record.name!r} is undecided ({record.category!r}); it is treated as {kind.value}",
        where=f"{record.pointer}/category",
        hint="choose a category in the editor",
        severity=Severity.WARNING,
    )


def _unknown(record: NodeRecord, hint: str) -> Problem:
    return problem(
        "LG030",
        f"the category {record.category!r} of node {record.name!r} is not known",
        where=f"{record.pointer}/category",
        hint=hint or f"known are {', '.join(sorted(KINDS))}",
    )
