"""The process that translates one source: reads, checks, unrolls, partitions, and writes a report.

`translator.web.jobs` starts it as ``python -m translator.web.translation_process FOLDER``. In the folder it finds
``order.json`` and ``source``, and writes ``report.json`` and, without errors, ``graph.dfg``. It reports each stage as a
line on standard output. When its standard input ends, its parent has ended, and it exits.
"""

import os
import resource
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from dropflow.api.error_body import to_body
from dropflow.clock import SystemClock
from dropflow.errors import BadGraphError, DropflowError, UsageError, WorldError
from dropflow.failure import Problem, Severity
from dropflow.graph import codec
from dropflow.graph.codec import digest
from dropflow.graph.order import critical_path, levels
from dropflow.graph.physical import Adjacency, PhysicalGraph
from dropflow.graph.templates import Kind, Template
from dropflow.host.processors import usable_cores
from dropflow.standard_output import reserve
from translator.graph_sizes import estimate
from translator.options import ComponentOptions, PartitionOptions, ReadOptions, UnrollOptions
from translator.parameters import form_of
from translator.pipeline import Checked, examine, finish, with_repository
from translator.plan.judge import with_schedule
from translator.plan.machines import Machines, live_machines
from translator.plan.move_bound import judge
from translator.plan.planner import place
from translator.plan.quality import quality_of
from translator.plan.registry import (
    BALANCED,
    ComparedPlan,
    check_partition,
    compared,
    machines_for,
    plan,
    promised_imbalance,
    suitable,
)
from translator.problem_codes import TOO_LARGE
from translator.web.records import (
    PartitionMeasures,
    PlanSummary,
    TranslatedLink,
    TranslatedNode,
    TranslationOrder,
    TranslationReport,
)

ORDER, SOURCE, REPORT, GRAPH = "order.json", "source", "report.json", "graph.dfg"
_LISTED_PROBLEMS = 1000
"""Problems in the report of a translation; it counts the others."""
_SHOWN_PARTS = 10_000
"""Parts whose loads and drops the report of a translation gives."""


def main(folder: Path) -> int:
    """Translate by the order in `folder`; return 0 if there is a report, of success or failure."""
    reserve()  # before there are threads
    leave_with_parent()
    order = msgspec.json.decode((folder / ORDER).read_bytes(), type=TranslationOrder)
    restrict(order.limits.memory, order.limits.seconds)
    stages = _Stages()
    try:
        report = translate(order, folder, stages)
    except MemoryError:
        limit = order.limits.memory // (1024 * 1024)
        text = f"the translation needs more than {limit:,} MB of memory, the limit of this translator"
        hint = "make the graph smaller, or start the translator with a higher limit"
        report = TranslationReport(state="failed", error=to_body(WorldError(text, where=order.name, hint=hint)))
    report = msgspec.structs.replace(report, seconds=stages.seconds())
    unfinished = folder / f"{REPORT}.part"
    unfinished.write_bytes(msgspec.json.encode(report))
    unfinished.replace(folder / REPORT)
    return 0


def translate(order: TranslationOrder, folder: Path, report_stage: Callable[[str], object]) -> TranslationReport:
    """Translate the source in `folder`, and write its graph there.

    Parameters
    ----------
    order : TranslationOrder
        What to do.
    folder : Path
        Where ``source`` is, and where ``graph.dfg`` goes.
    report_stage : callable
        Called with the text of each stage.
    """
    report_stage("reading and checking the graph")
    options = order.options
    if options.algorithm not in BALANCED:  # a form always has an imbalance, which DALiuGE has for METIS
        options = msgspec.structs.replace(options, imbalance=None)
    problems = [*order.notes, *_impossible(options)]
    try:
        checked = examine(
            folder / SOURCE,
            name=order.name,
            read_options=ReadOptions(max_bytes=order.limits.body, max_depth=order.limits.depth),
            unroll_options=UnrollOptions(
                prefix=order.prefix,
                max_drops=order.limits.drops,
                max_edges=order.limits.edges,
                rehearsal=order.rehearsal,
            ),
            configuration=order.configuration or None,
            settings=order.settings,
            component_options=ComponentOptions(),
        )
        checked = with_repository(checked, order.repository)
    except DropflowError as error:
        return _refused(_renamed(error, order.name), TranslationReport(state="refused"), problems)
    problems += [*checked.problems, *_too_large(checked, order)]
    report = _expected(checked)
    if checked.unfilled is not None:
        form = form_of(checked.unfilled, order.configuration, order.settings)
        report = msgspec.structs.replace(report, form=form)
    try:
        if any(problem.severity is Severity.ERROR for problem in problems):
            raise BadGraphError("the graph cannot be translated as asked", problems=tuple(problems))
        report_stage(f"unrolling {report.drops:,} drops")
        graph = finish(replace(checked, problems=())).graph
        machines = live_machines(order.nodes).machines(options.parts, graph.templates) if order.nodes else None
        cut_before, note = graph.parts > 1 and options.parts == 1, ""
        if not cut_before:
            report_stage(f"partitioning {graph.drops:,} drops by {options.algorithm}")
            problems += [p for p in check_partition(graph, options, machines) if p.severity is not Severity.ERROR]
            made = plan(graph, options, machines)
            if order.compare:
                plans = compared(
                    graph,
                    options,
                    machines,
                    tried=suitable(graph.drops),
                    on_algorithm=lambda name: report_stage(f"comparing the plan of {name}"),
                )
                report = msgspec.structs.replace(report, plans=tuple(map(_summary, plans)))
            else:
                report = msgspec.structs.replace(report, plans=order.plans)
            graph, note = made.graph, made.note
        report_stage("measuring the graph")
        sized = msgspec.structs.replace(options, parts=max(options.parts, graph.parts))
        where = machines_for(graph, sized, None if cut_before else machines, least=graph.parts).first(graph.parts)
        if machines is not None and options.dop:  # the shares of the processors are those of nodes
            graph = place(graph, [node.name for node in where.nodes])
        by = "an earlier translation" if cut_before else options.algorithm
        report = _measured(graph, by, report, where, note, imbalance=promised_imbalance(options))
        if machines is not None:  # nodes of a cluster; of others nothing is known that a run could be compared with
            graph = with_schedule(graph, where)
        report_stage(f"writing {report.bytes / 1e6:,.1f} MB")
        codec.save(graph, folder / GRAPH)
    except DropflowError as error:
        return _refused(_renamed(error, order.name), report, problems)
    return _with_problems(report, problems)


def _expected(checked: Checked) -> TranslationReport:
    """Return the report with the sizes that are known before the graph is unrolled."""
    if checked.outline is None:
        return TranslationReport(
            state="refused", family=checked.family, drops=checked.graph.drops if checked.graph else 0
        )
    size = estimate(checked.outline)
    return TranslationReport(
        state="refused",
        family=checked.family,
        drops=size.drops,
        data_drops=size.data_drops,
        app_drops=size.app_drops,
        edges=size.edges,
        connections=size.edges,
        bytes=size.bytes,
        nodes=_counts(checked.outline.templates, [node.drops for node in size.nodes]),
    )


def _measured(
    graph: PhysicalGraph,
    algorithm: str,
    report: TranslationReport,
    machines: Machines,
    note: str,
    *,
    imbalance: float | None,
) -> TranslationReport:
    sizes = np.bincount(graph.template, minlength=len(graph.templates)).tolist()
    edges = np.bincount(graph.successors.link, minlength=len(graph.links)).tolist()
    apps = int(graph.kinds[graph.template].sum(dtype="int64")) if graph.drops else 0
    quality = quality_of(graph)
    verdict = judge(graph, machines, imbalance=imbalance)
    out = graph.successors
    columns = (graph.template, graph.instance, graph.part, out.ptr, out.neighbour, out.link)
    return msgspec.structs.replace(
        report,
        state="done",
        drops=graph.drops,
        data_drops=graph.drops - apps,
        app_drops=apps,
        edges=graph.joined_pairs,
        connections=graph.edges,
        levels=int(levels(graph).max(initial=-1)) + 1,
        critical_path=critical_path(graph).length,
        bytes=sum(column.nbytes for column in columns),
        digest=digest(graph),
        nodes=_counts(graph.templates, sizes),
        links=tuple(
            TranslatedLink(
                source=graph.templates[link.source].name,
                target=graph.templates[link.target].name,
                source_port=link.source_port,
                target_port=link.target_port,
                edges=count,
            )
            for link, count in zip(graph.links, edges, strict=True)
        ),
        measures=PartitionMeasures(
            algorithm=algorithm,
            parts=quality.parts,
            edges=quality.edges,
            cut_edges=quality.cut_edges,
            volume_moved=quality.volume_moved,
            imbalance=quality.imbalance,
            acyclic=quality.acyclic,
            makespan=verdict.makespan_s,
            lower_bound=verdict.lower_bound_s,
            note="; ".join([*filter(None, [note]), *(f"not kept: {text}" for text in verdict.violations)]),
            loads=quality.loads[:_SHOWN_PARTS],
            part_drops=quality.drops[:_SHOWN_PARTS],
        ),
    )


def _summary(candidate: ComparedPlan) -> PlanSummary:
    if candidate.verdict is None:
        return PlanSummary(algorithm=candidate.algorithm, problem=candidate.problem)
    return PlanSummary(
        algorithm=candidate.algorithm,
        nodes_used=candidate.verdict.nodes_used,
        makespan=candidate.verdict.makespan_s,
        lower_bound=candidate.verdict.lower_bound_s,
        bytes_moved=candidate.verdict.bytes_moved,
        imbalance=candidate.verdict.imbalance,
        seconds=round(candidate.seconds, 6),
        violations=candidate.verdict.violations,
    )


def _counts(templates: tuple[Template, ...], sizes: list[int]) -> tuple[TranslatedNode, ...]:
    return tuple(
        TranslatedNode(
            key=template.key,
            name=template.name,
            category=template.category,
            component=template.component,
            is_app=template.kind is Kind.APP,
            shape=template.shape,
            drops=size,
        )
        for template, size in zip(templates, sizes, strict=True)
    )


def _impossible(options: PartitionOptions) -> list[Problem]:
    """Return errors of the options that do not depend on the graph, before a large one is unrolled."""
    none = np.zeros(0, dtype=np.int32)
    empty = PhysicalGraph(
        name="",
        prefix="",
        templates=(),
        links=(),
        template=none,
        instance=none,
        part=none,
        successors=Adjacency(ptr=np.zeros(1, dtype=np.int64), neighbour=none, link=none),
    )
    return [problem for problem in check_partition(empty, options) if problem.severity is Severity.ERROR]


def _too_large(checked: Checked, order: TranslationOrder) -> list[Problem]:
    """Check the limit for graphs that were sent unrolled; the outline of others has the same finding."""
    if checked.graph is None or checked.graph.drops <= order.limits.drops:
        return []
    text = f"the graph has {checked.graph.drops:,} drops, at most {order.limits.drops:,} are allowed"
    return [Problem(code=TOO_LARGE, severity=Severity.ERROR, where="", text=text)]


def _renamed(error: DropflowError, name: str) -> DropflowError:
    """Return the error without the path of a file of the server."""
    if os.sep in error.where and SOURCE in error.where:
        error.where = name
    return error


def _refused(error: DropflowError, report: TranslationReport, problems: list[Problem]) -> TranslationReport:
    inside = [problem for problem in getattr(error, "problems", ()) if isinstance(problem, Problem)]
    fresh = [problem for problem in inside if problem not in problems]
    body = msgspec.structs.replace(to_body(error), problems=())
    state = "refused" if isinstance(error, UsageError) else "failed"
    if not inside:
        fresh.append(
            Problem(code=error.code, severity=Severity.ERROR, where=error.where, text=error.text, hint=error.hint)
        )
    return _with_problems(msgspec.structs.replace(report, state=state, error=body), [*problems, *fresh])


def _with_problems(report: TranslationReport, problems: list[Problem]) -> TranslationReport:
    order = list(Severity)
    listed = sorted(problems, key=lambda problem: order.index(problem.severity))
    return msgspec.structs.replace(
        report, problems=tuple(listed[:_LISTED_PROBLEMS]), omitted=max(0, len(listed) - _LISTED_PROBLEMS)
    )


class _Stages:
    """Reports each stage on standard output, and measures its time."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._begun: list[tuple[str, float]] = []

    def __call__(self, stage: str) -> None:
        self._begun.append((stage, self._clock.monotonic()))
        sys.stdout.write(stage.replace("\n", " ") + "\n")
        sys.stdout.flush()

    def seconds(self) -> dict[str, float]:
        ends = [begun for _, begun in self._begun[1:]] + [self._clock.monotonic()]
        return {stage.split()[0]: round(end - begun, 6) for (stage, begun), end in zip(self._begun, ends, strict=True)}


def restrict(memory: int, seconds: float) -> None:
    """Limit address space and processor time of this process, and disable core files.

    The parent enforces the time limit; the limit on processor time is for the case that the parent is killed.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    processor = int(seconds * usable_cores()) + 10
    for kind, wanted in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, processor)):
        _, most = resource.getrlimit(kind)
        limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(kind, (limit, most))


def leave_with_parent() -> None:
    """Exit as soon as standard input ends."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(3)

    threading.Thread(target=wait, name="parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
