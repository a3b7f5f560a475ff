"""Weights of drops as earlier runs have measured them, in place of the estimates of a graph; and their files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadFileError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.times.measured_run import MeasuredRun, MeasuredSeconds

Floats = npt.NDArray[np.float64]
_Wide = npt.NDArray[np.int64]
_FORMAT_VERSION = 1
"""Version of the format of a profile; files of other versions are refused."""
_MAGIC = b"PK"
_USAGE = ("processor", "memory")
_RANGE = ("least", "most")


@dataclass(frozen=True)
class MeasuredNode:
    """Measurements of one logical node.

    Attributes
    ----------
    key : str
        Its id.
    kind : Kind
        Application or data.
    shape : tuple of int
        Shape of its index space, in the runs that were measured.
    instance : int64 array, shape (measured,)
        The instances that were measured, ascending.
    mean : float array, shape (measured,)
        Seconds of an application, bytes of data; the mean of all measurements of an instance.
    count : float array, shape (measured,)
        Number of these measurements.
    processor : float array, shape (measured,)
        Mean seconds of processor time of an application; NaN for data, and where it was not measured.
    memory : float array, shape (measured,)
        Largest resident memory of an application in bytes; NaN for data, and where it was not measured.
    least, most : float arrays, shape (measured,)
        The smallest and the largest of the measurements whose mean is `mean`.
    """

    key: str
    kind: Kind
    shape: tuple[int, ...]
    instance: _Wide
    mean: Floats
    count: Floats
    least: Floats
    most: Floats
    processor: Floats
    memory: Floats


def measured_nodes(run: MeasuredRun) -> tuple[MeasuredNode, ...]:
    """Return the measurements of a run, by logical node. Written bytes are divided among the outputs."""
    weight = _weights(run)
    processor, memory = _usage(run)
    graph, nodes = run.graph, []
    for row in np.unique(graph.template).tolist():
        drops = np.flatnonzero((graph.template == row) & np.isfinite(weight))
        if len(drops):
            node = graph.templates[row]
            nodes.append(
                MeasuredNode(
                    key=node.key,
                    kind=node.kind,
                    shape=node.shape,
                    instance=graph.instance[drops].astype(np.int64),
                    mean=weight[drops],
                    count=np.ones(len(drops)),
                    least=weight[drops],
                    most=weight[drops],
                    processor=processor[drops],
                    memory=memory[drops],
                )
            )
    return tuple(nodes)


def merged_nodes(nodes: Iterable[MeasuredNode]) -> tuple[MeasuredNode, ...]:
    """Return one record for each logical node and shape, with the means of all measurements, and the largest memory."""
    alike: dict[tuple[str, Kind, tuple[int, ...]], list[MeasuredNode]] = {}
    for node in nodes:
        alike.setdefault((node.key, node.kind, node.shape), []).append(node)
    merged = []
    for (key, kind, shape), group in alike.items():
        instance, place = np.unique(np.concatenate([node.instance for node in group]), return_inverse=True)
        counts = np.concatenate([node.count for node in group])
        sums = np.concatenate([node.mean * node.count for node in group])
        count = np.bincount(place.reshape(-1), weights=counts, minlength=len(instance)).astype(np.float64)
        total = np.bincount(place.reshape(-1), weights=sums, minlength=len(instance))
        merged.append(
            MeasuredNode(
                key=key,
                kind=kind,
                shape=shape,
                instance=instance,
                mean=total / count,
                count=count,
                least=-_largest(-np.concatenate([node.least for node in group]), place, len(instance)),
                most=_largest(np.concatenate([node.most for node in group]), place, len(instance)),
                processor=_means(np.concatenate([node.processor for node in group]), counts, place, len(instance)),
                memory=_largest(np.concatenate([node.memory for node in group]), place, len(instance)),
            )
        )
    return tuple(merged)


def _means(values: Floats, counts: Floats, place: _Wide, size: int) -> Floats:
    """Return the mean of the values at each place that are not NaN; NaN where there are none."""
    known = np.isfinite(values)
    at = place.reshape(-1)[known]
    total = np.bincount(at, weights=values[known] * counts[known], minlength=size)
    number = np.bincount(at, weights=counts[known], minlength=size)
    return np.where(number > 0, total / np.where(number > 0, number, 1), np.nan)


def _largest(values: Floats, place: _Wide, size: int) -> Floats:
    """Return the largest of the values at each place that are not NaN; NaN where there are none."""
    largest = np.full(size, np.nan)
    np.fmax.at(largest, place.reshape(-1), values)
    return largest


def with_measured_nodes(graph: PhysicalGraph, nodes: Iterable[MeasuredNode]) -> PhysicalGraph:
    """Return the graph with the seconds and the bytes that were measured.

    A drop gets the mean of its measurements, which are found by the id of its logical node and its instance. If the
    number of instances differs, or no run has measured this one, the drop gets the mean of its node. A node that no run
    has measured keeps its estimate.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is to be planned.
    nodes : iterable of MeasuredNode
        Measurements of runs of this graph, or of other graphs with the same logical nodes.
    """
    sums, counts = np.zeros(graph.drops), np.zeros(graph.drops)
    node_sums, node_counts = np.zeros(len(graph.templates)), np.zeros(len(graph.templates))
    rows_of = {template.key: row for row, template in enumerate(graph.templates)}
    for node in nodes:
        row = rows_of.get(node.key)
        if row is None or graph.templates[row].kind is not node.kind:
            continue
        node_sums[row] += (node.mean * node.count).sum()
        node_counts[row] += node.count.sum()
        if graph.templates[row].shape == node.shape:
            drops = np.flatnonzero(graph.template == row)
            place = np.full(int(np.prod(node.shape, dtype=np.int64)), -1, dtype=np.int64)
            place[graph.instance[drops]] = drops
            known = place[node.instance] >= 0
            np.add.at(sums, place[node.instance[known]], (node.mean * node.count)[known])
            np.add.at(counts, place[node.instance[known]], node.count[known])
    by_node = (node_sums / np.maximum(node_counts, 1))[graph.template]
    estimates = np.where((node_counts > 0)[graph.template], by_node, graph.drop_weights)
    weight: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), estimates)
    weight.flags.writeable = False
    return replace(graph, weight=weight)


def measured_seconds(graph: PhysicalGraph, nodes: Iterable[MeasuredNode]) -> MeasuredSeconds:
    """Return the measured seconds of the applications of a graph, and their range.

    An instance that was measured at least twice has its own smallest and largest time. Any other has those of all
    instances of its logical node, because one measurement gives no range.
    """
    weight = with_measured_nodes(graph, merged := merged_nodes(nodes)).drop_weights
    mean, least, most = (np.full(graph.drops, np.nan) for _ in range(3))
    rows_of = {template.key: row for row, template in enumerate(graph.templates)}
    ranges: dict[int, tuple[float, float]] = {}
    for node in merged:
        row = rows_of.get(node.key)
        if row is not None and graph.templates[row].kind is node.kind is Kind.APP:
            low, high = ranges.get(row, (np.inf, 0.0))
            ranges[row] = min(low, float(node.least.min())), max(high, float(node.most.max()))
    for row, (low, high) in ranges.items():
        drops = graph.template == row
        mean[drops], least[drops], most[drops] = weight[drops], low, high
    for node in merged:
        row = rows_of.get(node.key)
        if row in ranges and node.kind is Kind.APP and graph.templates[row].shape == node.shape:
            drops = np.flatnonzero(graph.template == row)
            place = np.full(int(np.prod(node.shape, dtype=np.int64)), -1, dtype=np.int64)
            place[graph.instance[drops]] = drops
            own = (place[node.instance] >= 0) & (node.count > 1)
            least[place[node.instance[own]]], most[place[node.instance[own]]] = node.least[own], node.most[own]
    return MeasuredSeconds(least, mean, most)


def _usage(run: MeasuredRun) -> tuple[Floats, Floats]:
    """Return the processor time and the memory of each drop, NaN for data and for missing measurements."""
    graph, done = run.graph, run.records[run.records["attempt"] > 0]
    done = done[graph.kinds[graph.template[done["drop"]]] == Kind.APP]
    processor, memory = np.full(graph.drops, np.nan), np.full(graph.drops, np.nan)
    processor[done["drop"]] = done["processor"]
    own = done[done["memory"] > 0]  # 0 if other attempts used the process, too
    np.fmax.at(memory, own["drop"], own["memory"].astype(np.float64))
    return processor, memory


def _weights(run: MeasuredRun) -> Floats:
    """Return the measured weight of each drop, NaN for those without."""
    graph, done = run.graph, run.records[run.records["attempt"] > 0]
    weight = np.full(graph.drops, np.nan)
    weight[done["drop"]] = done["ran"]
    out = graph.successors
    outputs = np.diff(out.ptr)
    source = np.repeat(np.arange(graph.drops), outputs)
    written = np.full(graph.drops, np.nan)
    written[done["drop"]] = done["written"]
    is_data = graph.kinds[graph.template] == Kind.DATA
    weight[is_data] = written[is_data]  # only for data without producers
    producers = np.bincount(out.neighbour[is_data[out.neighbour]], minlength=graph.drops)
    share = written[source] / np.maximum(outputs[source], 1)
    content = np.zeros(graph.drops)
    np.add.at(content, out.neighbour, share)
    return np.where(is_data & (producers > 0), content, weight)


# Profiles on disk: measurements of runs, as arrays (a ``.npz`` file of NumPy).


class _NodeHeader(msgspec.Struct, frozen=True):
    """One logical node, and how many of its instances were measured."""

    key: str
    kind: int
    shape: tuple[int, ...]
    measured: int


class _Profile(msgspec.Struct, frozen=True):
    version: int
    nodes: tuple[_NodeHeader, ...]


def write_profile(nodes: Sequence[MeasuredNode], stream: BinaryIO) -> None:
    """Write a profile."""
    headers = tuple(_NodeHeader(node.key, int(node.kind), node.shape, len(node.instance)) for node in nodes)
    text = msgspec.json.encode(_Profile(_FORMAT_VERSION, headers))
    empty: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = [np.zeros(0)]
    np.savez_compressed(
        stream,
        header=np.frombuffer(text, dtype=np.uint8),
        instance=np.concatenate([np.zeros(0, dtype=np.int64), *(node.instance for node in nodes)]),
        mean=np.concatenate(empty + [node.mean for node in nodes]),
        count=np.concatenate(empty + [node.count for node in nodes]),
        least=np.concatenate(empty + [node.least for node in nodes]),
        most=np.concatenate(empty + [node.most for node in nodes]),
        processor=np.concatenate(empty + [node.processor for node in nodes]),
        memory=np.concatenate(empty + [node.memory for node in nodes]),
    )


def read_profile(path: Path) -> tuple[MeasuredNode, ...]:
    """Return the measurements in a profile.

    Raises
    ------
    BadFileError
        It cannot be read, or is not a profile.
    """
    hint = "make one with 'dropflow times RUN -o FILE.npz'"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    if not data.startswith(_MAGIC):
        raise BadFileError("the file is not a profile", where=str(path), hint=hint)
    try:
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            profile = msgspec.json.decode(arrays["header"].tobytes(), type=_Profile)
            instance = arrays["instance"].astype(np.int64)
            columns = {name: arrays[name].astype(np.float64) for name in ("mean", "count")}
            for name in _USAGE:  # the first profiles did not have these
                columns[name] = arrays[name].astype(np.float64) if name in arrays else np.full(len(instance), np.nan)
            for name in _RANGE:  # as above
                columns[name] = arrays[name].astype(np.float64) if name in arrays else columns["mean"]
        return tuple(_nodes(profile, instance, columns))
    except Exception as error:  # zip, zlib, numpy and the parser of its header each have errors of their own
        raise BadFileError(f"the profile cannot be read: {error}", where=str(path), hint=hint) from error


def _nodes(
    profile: _Profile, instance: np.ndarray[tuple[int, ...], np.dtype[np.int64]], columns: Mapping[str, Floats]
) -> list[MeasuredNode]:
    ends = np.cumsum([0, *(node.measured for node in profile.nodes)]).tolist()
    lengths = {len(instance), *map(len, columns.values())}
    if profile.version != _FORMAT_VERSION or lengths != {ends[-1]} or any(node.measured < 1 for node in profile.nodes):
        raise ValueError("its parts do not fit together")
    for name, column in columns.items():
        known = column[~np.isnan(column)] if name in _USAGE else column  # NaN: not measured
        if not (np.isfinite(known).all() and (known >= 0).all() and (name != "count" or known.all())):
            raise ValueError("a number in it is not finite, or negative")
    nodes = []
    for node, first, last in zip(profile.nodes, ends[:-1], ends[1:], strict=True):
        here = slice(first, last)
        if instance[here].min() < 0 or instance[here].max() >= np.prod(node.shape, dtype=np.int64):
            raise ValueError(f"an instance of node {node.key!r} is out of range")
        own = {name: column[here] for name, column in columns.items()}
        nodes.append(MeasuredNode(node.key, Kind(node.kind), node.shape, instance[here], **own))
    return nodes
