"""The dependencies of the results of each logical node, which nodes are reused at all, and the keys known before a run.

The *deep* key of a drop is made from those of the drops that it is made from, so that a branch of the graph is known
without reading anything but files from outside. The key from contents is made where attempts run
(`dropflow.reuse.attempt`). They are the deep constructive and the constructive traces of A. Mokhov, N. Mitchell and
S. Peyton Jones, "Build systems à la carte", Proc. ACM Program. Lang. 2 (ICFP), 2018.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.apps.functions.load_function import is_pickled
from dropflow.apps.needs import images_of
from dropflow.apps.registry import app_class, builtin_name, import_builtin
from dropflow.apps.template_cache import AppNode
from dropflow.data.registry import is_outside_files, is_read_from_outside, may_have_version, outside_roots
from dropflow.errors import DropflowError
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import KeyPart
from dropflow.graph.components import Unset, Unusable, convert, expand, find, fold, is_empty
from dropflow.graph.digests import propagated
from dropflow.graph.order import reached
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import ORDER_PORT, Argument, Kind, Link, Template
from dropflow.reuse.code import CodeReader
from dropflow.reuse.result_store import digest_of, key_of
from dropflow.version import __version__

_NO_MATTER = frozenset(
    fold(name)
    for name in (
        "dropclass",
        "execution_time",
        "num_cpus",
        "memory",
        "mem_usage",
        "num_gpus",
        "group_start",
        "group_end",
        "n_tries",
        "timeout",
        "log_level",
        "deterministic",
        "reuse_ignore",
        "func_code",
    )
)
"""Fields of applications that change how or when they run, and not what they give; and those that count as code."""
_WITH_EFFECTS = frozenset(("ServiceApp", "StopServiceApp", "MPIApp"))
_BRANCHES = frozenset(("Branch", "SimpleBranch"))
_IMAGE_FIELDS = frozenset(map(fold, ("image", "tag", "digest", "docker_tag", "docker_digest", "run_in")))


class NodeKey(NamedTuple):
    """Dependencies of the results of an application node beside its inputs; or why they are never reused."""

    parts: tuple[KeyPart, ...]
    reason: str = ""


def node_keys(graph: PhysicalGraph, code: CodeReader, directory: Path | None = None) -> tuple[NodeKey, ...]:
    """Return the key of each template; those of data are empty.

    The directory of the session says which images its containers run.
    """
    images: Mapping[str, str] = {}
    if directory is not None and any(map(_may_have_image, graph.templates)):
        from dropflow.apps.container_engine import read_record  # noqa: PLC0415 - most graphs have no containers

        images = read_record(directory).images
    keys = [_node_key(graph, row, code, images) for row in range(len(graph.templates))]
    # What runs after an application with side effects may read what that writes.
    while True:
        late = {
            consumer.target: graph.templates[order.source].name
            for consumer in graph.links
            if consumer.target_port == ORDER_PORT and not keys[consumer.target].reason
            for order in graph.links
            if order.target == consumer.source and keys[order.source].reason
        }
        if not late:
            return tuple(keys)
        for row, name in late.items():
            keys[row] = NodeKey((), f"runs after {name}, which always runs")


def _node_key(graph: PhysicalGraph, row: int, code: CodeReader, images: Mapping[str, str]) -> NodeKey:
    template = graph.templates[row]
    if template.kind is Kind.DATA:
        return NodeKey(())
    reason = _why_not(graph, row)
    if reason:
        return NodeKey((), reason)
    ours = builtin_name(template)
    parts = [KeyPart("component", ours or template.component, __version__ if ours else "")]
    if not ours:
        parts += code.of_name(template.component.strip())
    parts += _function(template, code)
    named = images_of([template]) if _may_have_image(template) else []
    parts += _fields(template, without=_image_fields(template) if named else ())
    parts += [KeyPart("container image", "", _unchanging(name, images.get(name, ""))) for name in named]
    outputs = [link for link in graph.links if link.source == row and link.source_port != ORDER_PORT]
    parts += [KeyPart("output", link.source_port, _data_class(graph.templates[link.target])) for link in outputs]
    rules = template.error_threshold, template.effective_inputs, template.block_skip, sorted(template.collects)
    parts.append(KeyPart("rules of inputs", "", msgspec.json.encode(rules).decode()))
    return NodeKey(tuple(parts))


def _why_not(graph: PhysicalGraph, row: int) -> str:
    """Return why the results of an application node are never reused; empty if they are."""
    template = graph.templates[row]
    ours = builtin_name(template)
    if not _is_deterministic(template, ours):
        return "is marked as not deterministic"
    if ours in _WITH_EFFECTS or any(axis.kind == "mpi" for axis in template.axes):
        return "takes part in a service or an MPI job"
    if any(AppNode(template).changes(argument.name) for argument in template.arguments):
        return "changes an input in place"
    own = [link for link in graph.links if row in (link.source, link.target)]
    if not any(link.source == row and link.source_port != ORDER_PORT for link in own):
        return "has no outputs, so its effects are elsewhere"
    return next(filter(None, (_hidden_content(graph, row, link) for link in own)), "")


def _hidden_content(graph: PhysicalGraph, row: int, link: Link) -> str:
    """Return why the content at the other end of a link has no digest; empty if it has."""
    data = graph.templates[link.target if link.source == row else link.source]
    if link.streaming and app_class(graph.templates[row]).streams:
        return f"streams {data.name}"
    if not is_outside_files(data):
        return ""
    if link.source == row:
        return f"writes {data.name}, which is in a store or database"
    return "" if may_have_version(data) else f"reads {data.name}, which is in an archive or database"


def _is_deterministic(template: Template, ours: str) -> bool:
    field = find(template.arguments, "deterministic")
    if field is not None and not is_empty(field.value, "Boolean"):
        try:
            return bool(convert(field.value, "Boolean"))
        except Unusable:
            return False  # such as "no": in doubt it runs
    own = import_builtin(ours).component.parameters if ours else ()
    return all(parameter.default for parameter in own if parameter.name == "deterministic")


def _function(template: Template, code: CodeReader) -> Sequence[KeyPart]:
    """Return what the code of a function node is."""
    name, source = find(template.arguments, "func_name"), find(template.arguments, "func_code")
    called = str(name.value or "") if name is not None else ""
    if source is not None and not is_empty(source.value, "String") and not source.is_port:
        text = str(source.value)
        if is_pickled(text):
            return [KeyPart("function", called or template.name, key_of(text))]
        return code.of_source(text, called or template.name)
    return code.of_name(called) if "." in called else ()


def _may_have_image(template: Template) -> bool:
    return any(find(template.arguments, name) is not None for name in ("image", "run_in"))


def _image_fields(template: Template) -> list[str]:
    """Return the fields that only name the image: another name of the same image gives the same results."""
    texts = [str(argument.value) for argument in template.arguments]
    named = [
        argument.name
        for argument in template.arguments
        if fold(argument.name) in _IMAGE_FIELDS and not argument.is_port
    ]
    return [name for name in named if not any(f"{{{name}}}" in text for text in texts)]


def _fields(template: Template, *, without: Collection[str]) -> list[KeyPart]:
    ignored = {fold(word) for word in _words(find(template.arguments, "reuse_ignore"))}
    is_library = builtin_name(template).startswith("Dynlib")
    library = find(template.arguments, "libpath", ("lib",) if is_library else ())
    parts = []
    for argument in template.arguments:
        name = fold(argument.name)
        if name in ignored or name in _NO_MATTER or argument.name in without:
            continue
        if argument.parameter_type == "ConstraintParameter":
            continue
        if not argument.is_port or argument.value not in (None, ""):
            parts.append(KeyPart("parameter", argument.name, _text(argument.value), type=_type(argument)))
        if argument.is_port:
            parts.append(KeyPart("port", argument.name, f"{argument.usage} {argument.encoding}"))
        if argument is library and argument.value:
            parts.append(KeyPart("library", argument.name, _library(str(argument.value))))
    return parts


def _unchanging(name: str, image: str) -> str:
    """Return the digest or id of an image; its name if that is all that is known, as for files of apptainer."""
    return (name if image.startswith("/") else image or name).rpartition("@")[2]


def _words(argument: Argument | None) -> list[str]:
    return [] if argument is None else [word.strip() for word in str(argument.value or "").split(",")]


def _text(value: object) -> str:
    with suppress(Unset):
        if (found := expand(value)) is not value:  # a digest, as variables may be secrets, and keys are shown
            return f"{value} ({key_of(found)})"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _type(argument: Argument) -> str:
    """Return what tells a value from another one with the same `_text`."""
    return f"{argument.type} as text" if isinstance(argument.value, str) else argument.type


def _library(given: str) -> str:
    """Return the digest of a shared library, which is found as its application finds it, or its name in the system."""
    from dropflow.apps.dynlib import located  # noqa: PLC0415 - most graphs have no such application

    path = located(os.path.expandvars(given.strip()))
    if "/" not in path:
        return path or "not found"
    try:
        return digest_of(Handle(kind="file", location=str(Path(path).absolute()))) or ""
    except DropflowError:
        return "not found"


def _data_class(template: Template) -> str:
    return template.component or template.category


# Keys of all drops.


def deep_keys(
    graph: PhysicalGraph, nodes: Sequence[NodeKey], content: Callable[[int], str | None]
) -> npt.NDArray[np.uint64]:
    """Return the key of each drop, shape (drops, 2); zeros where it is not known before the run.

    Parameters
    ----------
    nodes : sequence of NodeKey
        From `node_keys`.
    content : callable
        Returns the digest of a drop of `outside_roots`, or its version in a store; None if its content is not known.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    own = np.zeros((graph.drops, 2), np.uint64)
    degrees = np.diff(graph.successors.ptr).astype(np.uint64)
    is_app = graph.kinds[graph.template] == np.uint8(Kind.APP)
    # An application that gets one more output is another one.
    own[is_app, 0] = degrees[is_app]
    hidden = [
        bool(node.reason) or _decides_late(node_template)
        for node, node_template in zip(nodes, graph.templates, strict=True)
    ]
    unknown = [np.flatnonzero(np.array(hidden, np.bool_)[graph.template])]
    for drop in outside_roots(graph):
        digest = content(drop)
        if digest is None:
            unknown.append(np.array([drop]))
        else:
            own[drop] = int(digest[-32:-16], 16), int(digest[-16:], 16)
    has_values = frozenset(graph.template[np.diff(graph.predecessors.ptr) == 0].tolist())
    described = [
        [part.counted for part in node.parts]
        if template.kind is Kind.APP
        else _of_data(template, with_values=row in has_values)
        for row, (template, node) in enumerate(zip(graph.templates, nodes, strict=True))
    ]
    digests = propagated(graph, described, own)
    start = np.concatenate(unknown)
    digests[start] = 0
    digests[reached(graph.successors, start.tolist())[0]] = 0
    return digests


def _decides_late(template: Template) -> bool:
    """Return whether only a run tells which inputs an application gets, or which of its outputs it skips."""
    if template.kind is not Kind.APP:
        return False
    may_lack_inputs = template.error_threshold > 0 or template.effective_inputs > 0
    return may_lack_inputs or builtin_name(template) in _BRANCHES


def _of_data(template: Template, *, with_values: bool) -> object:
    made = with_values and not is_read_from_outside(template)
    values: Mapping[str, tuple[str, str]] = {
        argument.name: (_type(argument), _text(argument.value))
        for argument in template.arguments
        if made and not argument.is_port
    }
    return _data_class(template), template.category, sorted(template.collects), values
