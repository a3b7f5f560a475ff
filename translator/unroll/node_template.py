"""The template of a logical node, from its fields."""

from collections.abc import Iterable

from dropflow.graph.templates import DEFAULT_TRIES, GPU_FIELD, TWO_PORTS, Argument, Kind, Template
from translator.logical import Field, LogicalNode, NodeKind
from translator.problem_codes import problem
from translator.unroll.levels import Findings, Levels, is_on, pointer, quantity, whole

MEMORY = "dlg.data.drops.memory.InMemoryDROP"
NULL = "dlg.data.drops.data_base.NullDROP"
COPY = "dlg.apps.simple.CopyApp"
GROUP = "dropflow.apps.GroupByApp"
SLEEP = "dlg.apps.simple.SleepApp"

_COMPONENTS = {
    "File": "dlg.data.drops.file.FileDROP",
    "Directory": "dlg.data.drops.directorycontainer.DirectoryContainer",
    "Memory": MEMORY,
    "SharedMemory": "dlg.data.drops.memory.SharedMemoryDROP",
    "S3": "dlg.data.drops.s3_drop.S3DROP",
    "NGAS": "dlg.data.drops.ngas.NgasDROP",
    "Plasma": "dlg.data.drops.plasma.PlasmaDROP",
    "PlasmaFlight": "dlg.data.drops.plasma.PlasmaFlightDROP",
    "RDBMS": "dlg.data.drops.rdbms.RDBMSDrop",
    "PythonObject": MEMORY,
    "ParameterSet": "dlg.data.drops.parset_drop.ParameterSetDROP",
    "json": "dlg.data.drops.json_drop.JsonDROP",
    "null": NULL,
    "BashShellApp": "dlg.apps.bash_shell_app.BashShellApp",
    "Docker": "dlg.apps.dockerapp.DockerApp",
    "DynlibApp": "dlg.apps.dynlib.DynlibApp",
    "DynlibProcApp": "dlg.apps.dynlib.DynlibProcApp",
    "Mpi": "dlg.apps.mpi.MPIApp",
    "PyFuncApp": "dlg.apps.pyfunc.PyFuncApp",
    "PythonMemberFunction": "dlg.apps.pyfunc.PyMemberApp",
    "GroupBy": GROUP,
    "Branch": "dlg.apps.branch.BranchApp",
}
"""Class of a node without one, by category, as in DALiuGE."""

_USAGES = {
    (False, False): "NoPort",
    (True, False): "InputPort",
    (False, True): "OutputPort",
    (True, True): TWO_PORTS,
}


def template_of(node: LogicalNode, levels: Levels, findings: Findings) -> Template:
    """Return the template of a data or application node.

    Parameters
    ----------
    node : LogicalNode
        A node, or a group-by construct without an application.
    levels : tuple of Level
        Its index space.
    findings : list of Problem
        LG091 and LG093 are added; invalid values are replaced by defaults.
    """
    is_data = node.kind is NodeKind.DATA
    if not is_data:
        whole(
            node, GPU_FIELD, 0, findings, lowest=0
        )  # only reported: `dropflow.graph.templates.needs_of` reads the field
    return Template(
        key=node.key or node.id,
        name=node.name,
        kind=Kind.DATA if is_data else Kind.APP,
        component=_component(node, findings),
        category=node.category,
        axes=tuple(level.axis for level in levels),
        arguments=_arguments(node.fields, node),
        weight=quantity(node, "data_volume" if is_data else "execution_time", 1.0, findings),
        cpus=1 if is_data else whole(node, "num_cpus", 1, findings, lowest=1),
        error_threshold=quantity(node, "input_error_threshold", 0.0, findings, highest=100.0),
        tries=whole(node, "n_tries", DEFAULT_TRIES, findings, lowest=1),
        effective_inputs=whole(node, "n_effective_inputs", -1, findings, lowest=-1),
        block_skip=is_on(node.value("block_skip", default=False)),
        persist=_persist(node),
        app_name=node.app_name,
    )


def _component(node: LogicalNode, findings: Findings) -> str:
    named = node.value("dropclass")
    if named is not None:
        return str(named).strip()
    if node.category == "Branch" and (node.value("func_name") or node.value("func_code")):
        return "dlg.apps.branch.Branch"  # the class of DALiuGE without a name, below, has no function
    if node.category in _COMPONENTS:
        return _COMPONENTS[node.category]
    if node.kind is NodeKind.DATA:
        return MEMORY
    text = f"application {node.name!r} has no class: it will only sleep"
    findings.append(
        problem("LG093", text, where=pointer(node, "dropclass"), hint="set its field dropclass, or choose a component")
    )
    return SLEEP


def _persist(node: LogicalNode) -> bool | None:
    for name in ("persist", "precious"):
        value = node.value(name)
        if value is not None:
            return is_on(value)
    return None


def _arguments(fields: Iterable[Field], node: LogicalNode) -> tuple[Argument, ...]:
    """Return the fields as arguments with unique names: an input and an output port of one name become one argument."""
    usages: dict[str, set[str]] = {}
    for field in fields:
        usages.setdefault(field.name, set()).add(field.usage)
    return tuple(_argument(node.by_name[name], usage) for name, usage in usages.items())


def _argument(field: Field, usages: set[str]) -> Argument:
    return Argument(
        name=field.name,
        value=field.effective,
        type=field.type,
        encoding=field.encoding,
        usage="InputOutput" if "InputOutput" in usages else _USAGES["InputPort" in usages, "OutputPort" in usages],
        parameter_type=field.parameter_type,
        id=field.id,
        positional=field.positional,
        precious=field.precious,
        default=field.default,
        options=field.options,
        description=field.description,
    )
