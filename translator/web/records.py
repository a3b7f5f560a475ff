"""The records of translations, the same on disk and in answers."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dropflow.api.error_body import ErrorBody
from dropflow.api.node_records import NodeInfo
from dropflow.failure import Problem, Severity
from dropflow.graph.notes import RepositoryNote
from dropflow.ids import SESSION_NAME
from dropflow.session_options import SubmitOptions
from translator.options import DEFAULT_ALGORITHM, DEFAULT_IMBALANCE, PartitionOptions
from translator.parameters import TemplateForm
from translator.problem_codes import BAD_PARTITION, TOO_LARGE

State = Literal["waiting", "running", "done", "refused", "failed"]
"""A translation waits, runs and ends: with a graph, refused because of errors in its source, or failed."""

PARTITION_PROBLEMS = ("PT001", BAD_PARTITION)
"""Codes of errors about the partition, not about the graph."""

_MEGABYTE = 1024 * 1024
"""Bytes of a mebibyte."""
_Name = Annotated[str, Meta(max_length=200)]
_Value = str | int | float | bool | None


class ShownForecast(msgspec.Struct, frozen=True):
    """How many applications of a logical node would run, are reused, or wait for their inputs, and why."""

    node: str
    runs: int
    reused: int
    waits: int
    reasons: tuple[str, ...]


class Forecast(msgspec.Struct, frozen=True):
    """The part of the answer of ``dropflow submit --dry-run`` that the page shows: how many applications would run."""

    runs: int
    reused: int
    waits: int
    seconds: float
    seconds_least: float
    seconds_most: float
    core_hours: float
    core_hours_least: float
    core_hours_most: float
    unmeasured: int
    nodes: tuple[ShownForecast, ...]


class TranslatorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the cost of one translation, and of all together.

    Attributes
    ----------
    body : int
        Bytes of a posted form or graph.
    depth : int
        Levels to which lists and objects in JSON may be nested.
    drops, edges : int
        A graph that would become larger is refused before it is unrolled.
    seconds : float
        Wall-clock time of one translation, or of one export.
    memory : int
        Bytes of address space of one worker process.
    workers, waiting : int
        Translations that run at a time, and those that wait; more are refused.
    kept, kept_bytes : int
        Translations that are kept on disk, and their size; the oldest are deleted.
    """

    body: Annotated[int, Meta(ge=1)] = 256 * _MEGABYTE
    depth: Annotated[int, Meta(ge=1)] = 200
    drops: Annotated[int, Meta(ge=1)] = 10_000_000
    edges: Annotated[int, Meta(ge=1)] = 50_000_000
    seconds: Annotated[float, Meta(gt=0)] = 300.0
    memory: Annotated[int, Meta(ge=1)] = 8 * 1024 * _MEGABYTE
    workers: Annotated[int, Meta(ge=1)] = 2
    waiting: Annotated[int, Meta(ge=1)] = 32
    kept: Annotated[int, Meta(ge=1)] = 200
    kept_bytes: Annotated[int, Meta(ge=1)] = 8 * 1024 * _MEGABYTE


class TranslateQuery(PartitionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to translate a graph whose bytes are the body of the request.

    Attributes
    ----------
    name : str
        Name of the graph, such as its file's.
    algorithm, parts and others
        See `translator.options.PartitionOptions`.
    configuration : str
        Id or name of a stored configuration; the graph's active one always applies.
    settings : str
        Values of parameters, one ``NODE.PARAM=VALUE`` a line.
    prefix : str
        First part of the drops' text ids; from the graph's name when empty.
    rehearsal : bool
        Replace all applications and data by placeholders, to try out the graph.
    compare : bool
        Report the plans of all algorithms, too.
    seconds : float
        Longest time to wait for the end before the answer.
    """

    name: _Name = ""
    configuration: _Name = ""
    settings: Annotated[str, Meta(max_length=100_000)] = ""
    prefix: Annotated[str, Meta(max_length=100)] = ""
    rehearsal: bool = False
    compare: bool = False
    seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0


def partition_options(fields: PartitionOptions) -> PartitionOptions:
    """Return the options of the partition in a request."""
    return PartitionOptions(**{name: getattr(fields, name) for name in PartitionOptions.__struct_fields__})


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds to wait for the end of a translation before answering."""

    seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0


class RepartitionRequest(PartitionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to partition the graph of a translation again; see `translator.options.PartitionOptions`.

    With `compare`, the report has the plans of all algorithms, too.
    """

    compare: bool = False


class FillRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values for the parameters of a template; see `translator.parameters.TemplateForm`.

    Attributes
    ----------
    values : dict
        Values by parameter. Parameters without one here, or with an empty one, have that of the graph.
    configuration : str
        Name or id of a stored configuration; empty for none.
    """

    values: Annotated[dict[_Name, _Value], Meta(max_length=1000)] = {}
    configuration: _Name = ""


class DeployRequest(SubmitOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deploy the graph of a translation.

    Attributes
    ----------
    manager : str
        Address of the manager, one of those that the translator was started with.
    session : str
        Name of the session; made from the graph's name when empty.
    spread : bool
        Plan the graph again, with one part for each node that is alive, by their capacities and their load now.
    until, check and others
        See `dropflow.session_options.SubmitOptions`.
    """

    manager: Annotated[str, Meta(max_length=1024)]
    session: Annotated[str, Meta(pattern=f"^$|{SESSION_NAME}")] = ""
    spread: bool = False


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was started, and its page."""

    session: str
    manager: str
    url: str
    nodes: tuple[str, ...] = ()


class PlanSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one of several algorithms; see `translator.plan.move_bound.Verdict`.

    Attributes
    ----------
    problem : str
        Why it made no plan; the figures are 0 then.
    seconds : float
        Seconds that planning took.
    """

    algorithm: str
    problem: str = ""
    nodes_used: int = 0
    makespan: float = 0.0
    lower_bound: float = 0.0
    bytes_moved: float = 0.0
    imbalance: float = 0.0
    seconds: float = 0.0
    violations: tuple[str, ...] = ()


class TranslationOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker translates the source in the same folder.

    Attributes
    ----------
    created : float
        Seconds since the epoch.
    options : PartitionOptions
        How to partition it.
    notes : tuple of Problem
        Findings about the form. After an error among them the graph is refused, with its own findings too.
    nodes : tuple of NodeInfo
        The nodes to plan for, as their manager reported them; none for equal ones.
    compare : bool
        Whether all algorithms make a plan.
    plans : tuple of PlanSummary
        Their plans, if they are known already.
    submission : SubmitOptions
        How its session is to run, unless something else is asked for.
    repository : RepositoryNote or None
        Where the source was read from, if that is a repository.
    """

    name: str
    created: float
    options: PartitionOptions = PartitionOptions()
    nodes: tuple[NodeInfo, ...] = ()
    configuration: str = ""
    settings: tuple[str, ...] = ()
    prefix: str = ""
    rehearsal: bool = False
    compare: bool = False
    plans: tuple[PlanSummary, ...] = ()
    notes: tuple[Problem, ...] = ()
    submission: SubmitOptions = SubmitOptions()
    repository: RepositoryNote | None = None
    limits: TranslatorLimits = TranslatorLimits()


class TranslatedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One logical node and the number of its drops; `shape` is that of its index space."""

    key: str
    name: str
    category: str
    component: str
    is_app: bool
    drops: int
    shape: tuple[int, ...] = ()


class TranslatedLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link between two logical nodes and the number of its edges."""

    source: str
    target: str
    source_port: str
    target_port: str
    edges: int


class PartitionMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of the partition; see `translator.plan.quality.Quality`.

    `makespan` and `lower_bound` are the completion time in seconds on equal nodes, and one that no plan can beat;
    `note` is why `auto` chose the plan.
    """

    algorithm: str
    parts: int
    edges: int
    cut_edges: int
    volume_moved: float
    imbalance: float
    acyclic: bool
    makespan: float = 0.0
    lower_bound: float = 0.0
    note: str = ""
    loads: tuple[float, ...] = ()
    part_drops: tuple[int, ...] = ()


class TranslationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a translation.

    Attributes
    ----------
    state : str
        ``done``, ``refused`` or ``failed``.
    family : str
        The format of the source (`translator.formats.Family`).
    problems : tuple of Problem
        All findings, the worst first; `omitted` more are not listed.
    error : ErrorBody or None
        Why there is no graph.
    drops, data_drops, app_drops, edges, connections : int
        Sizes; for a graph that is refused as too large, those that it would have.
    levels : int
        Length of the longest chain of drops.
    critical_path : float
        Core seconds along the heaviest chain.
    bytes : int
        Memory of the graph's columns.
    digest : str
        Fingerprint of the graph.
    form : TemplateForm or None
        Parameters and configurations of the graph, to ask for values; None if it has none.
    plans : tuple of PlanSummary
        The plans of all algorithms, if they were asked for.
    seconds : dict of str to float
        Seconds of each stage.
    """

    state: Literal["done", "refused", "failed"]
    family: str = ""
    problems: tuple[Problem, ...] = ()
    omitted: int = 0
    error: ErrorBody | None = None
    drops: int = 0
    data_drops: int = 0
    app_drops: int = 0
    edges: int = 0
    connections: int = 0
    levels: int = 0
    critical_path: float = 0.0
    bytes: int = 0
    digest: str = ""
    nodes: tuple[TranslatedNode, ...] = ()
    links: tuple[TranslatedLink, ...] = ()
    measures: PartitionMeasures | None = None
    form: TemplateForm | None = None
    plans: tuple[PlanSummary, ...] = ()
    seconds: dict[str, float] = {}


class TranslationInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One translation as it is now.

    Attributes
    ----------
    id : str
        Random; a request with it may read the translation.
    stage : str
        The present stage, as text.
    created, finished : float
        Seconds since the epoch; 0 when it has not happened.
    algorithm, parts, imbalance
        As they were asked for.
    submission : SubmitOptions
        How its session is to run, unless something else is asked for: as the one that it is a clone of.
    report : TranslationReport or None
        None until it has ended.
    """

    id: str
    name: str
    state: State
    stage: str = ""
    created: float = 0.0
    finished: float = 0.0
    algorithm: str = DEFAULT_ALGORITHM
    parts: int = 1
    imbalance: float = DEFAULT_IMBALANCE
    submission: SubmitOptions = SubmitOptions()
    report: TranslationReport | None = None

    @property
    def is_over(self) -> bool:
        """Whether the translation has ended."""
        return self.report is not None

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The errors in its report."""
        problems = self.report.problems if self.report else ()
        return tuple(problem for problem in problems if problem.severity is Severity.ERROR)

    @property
    def needs_values(self) -> bool:
        """Whether it is a template, whose parameters need values before it can be checked further."""
        form = self.report.form if self.report is not None else None
        return self.state == "refused" and form is not None and form.is_template

    @property
    def has_sizes(self) -> bool:
        """Whether its report has counts of the whole graph: at most its size or its partition is wrong."""
        codes = {problem.code for problem in self.errors}
        return self.state == "done" or (bool(codes) and codes <= {TOO_LARGE, *PARTITION_PROBLEMS})

    @property
    def can_repartition(self) -> bool:
        """Whether another partition may be asked for: there is a graph, or the partition is what is wrong."""
        return self.state == "done" or any(problem.code == BAD_PARTITION for problem in self.errors)


class TranslationList(msgspec.Struct, frozen=True, kw_only=True):
    """All translations that are kept, the youngest first, without their reports."""

    translations: tuple[TranslationInfo, ...]
