"""Reuse where attempts run: an application whose inputs are there takes what an earlier run stored, or stores its own.

The key has the *contents* of the inputs, so an application that gives the same bytes as before, though it has changed,
is the last one that runs (early cut-off). The executor asks before it runs an attempt, in the process of the attempt:
the session and its core see an attempt like any other.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from socket import gethostname
from typing import Any

import msgspec
import numpy as np

from dropflow.apps.attempt import AttemptContext
from dropflow.apps.functions.loaded_modules import outdated_modules
from dropflow.clock import Clock
from dropflow.data.remote import store_version
from dropflow.errors import DropflowError, ResultDiffersError
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import ExecutorSpec, KeyPart
from dropflow.failure import summary_of
from dropflow.formatting import few
from dropflow.graph.templates import ORDER_PORT
from dropflow.reuse.code import first_changed_line
from dropflow.reuse.log import ReuseLog, TakenResult
from dropflow.reuse.result_store import Record, ResultStore, StoredContent, digest_of, key_of
from dropflow.states import DropState

_AttemptInput = tuple[str, str, str, str, bool]
"""Port, name, class, digest, and whether it is text."""
INPUTS = ("input", "inputs")
"""Kinds of the parts of a key that inputs are."""
MOST_REASONS = 4
"""Reasons that are given for one application, or for one logical node."""
_EDITED = "a module that it uses was edited after this process had loaded it"
_MOST_INPUTS = 50
"""Inputs that are told apart in a record; of more, one digest of all."""


def drop_name(graph: str, node: str, index: Sequence[int]) -> str:
    """Return the name under which a store has the last record of a drop, whatever its key was."""
    return key_of(graph, node, tuple(index))


def attempt_key(
    own: Sequence[KeyPart],
    index: Sequence[int],
    inputs: Sequence[_AttemptInput],
    ports: Sequence[str],
) -> str:
    """Return the key of an application by the contents of its inputs, and by the ports of its outputs."""
    return key_of([part.counted for part in own], tuple(index), inputs, ports)


def is_sampled(session: str, drop: str, share: float) -> bool:
    """Return whether the result of a drop is among those that a session computes again, to compare."""
    return share > 0.0 and int(key_of(session, drop)[:8], 16) < share * (1 << 32)


class StoredAttempt(msgspec.Struct, frozen=True):
    """An attempt with a key: its parts, and what the store has for it.

    `found` is to be compared with what the attempt gives, if `is_compared`; otherwise to be taken.
    """

    key: str
    parts: tuple[KeyPart, ...]
    found: Record | None
    is_compared: bool


class AttemptReuse:
    """The reuse of results, for the executor of a session before and after each attempt.

    Parameters
    ----------
    spec : ExecutorSpec
        With a `ReuseSpec`.
    clock : Clock
        Tells the time.
    """

    def __init__(self, spec: ExecutorSpec, clock: Clock) -> None:
        reuse = spec.reuse
        assert reuse is not None  # the caller looks
        self._reuse = reuse
        self._session = spec.session
        self._inside = f"{spec.directory}/"
        self._store = ResultStore(reuse.store)
        self._log = ReuseLog(reuse.log)
        self._keys: Any = None
        with suppress(FileNotFoundError):
            self._keys = np.load(reuse.keys, mmap_mode="r")
        self._host = gethostname()
        outdated = outdated_modules(clock)
        self._nodes = [
            None
            if parts and any(part.kind in ("module", "package") and part.name in outdated for part in parts)
            else parts
            for parts in reuse.nodes
        ]

    def look_up(self, attempt: AttemptContext) -> StoredAttempt | None:
        """Return the key of an attempt, and the result that the store has; None if it is not to be reused."""
        task = attempt.task
        own = self._nodes[task.template]
        if own is None:
            self._note_run(task.drop, self._reuse.always_run.get(task.template) or _EDITED)
            return None
        inputs = self._inputs(attempt)
        if inputs is None:
            return None
        key = self._key(attempt, own, inputs)
        record = self._store.find(key)
        if record is not None and not all(map(self._store.is_there, record.outputs)):
            record = None
        if record is None:
            self._note_run(task.drop, self._why(attempt, own, inputs))
        is_compared = record is not None and is_sampled(self._session, task.oid, self._reuse.verify)
        return StoredAttempt(key, (*own, *_shown(inputs)), record, is_compared)

    def _why(self, attempt: AttemptContext, own: Sequence[KeyPart], inputs: Sequence[_AttemptInput]) -> str:
        """Return what differs from the last time that a drop ran; empty if it has not run before."""
        last = self._store.find(self._name(attempt), last=True)
        if last is None:
            return ""
        before = [part for part in last.parts if part.kind not in INPUTS]
        changes = input_changes(
            [part for part in last.parts if part.kind in INPUTS], [(name, digest) for _, name, _, digest, _ in inputs]
        )
        reasons = [*islice(differences(before, own, self._store), MOST_REASONS), *changes[:MOST_REASONS]]
        return "; ".join(reasons) or "its stored result is gone or damaged"

    def _note_run(self, drop: int, reason: str) -> None:
        if reason:
            self._log.add(TakenResult(drop=drop, has_run=True, reason=reason))

    def take(self, attempt: AttemptContext, stored: StoredAttempt) -> bool:
        """Give the outputs of an attempt the contents that the store has; return whether that was possible."""
        record = stored.found
        outputs = attempt.outputs
        if record is None or stored.is_compared or len(record.outputs) != len(outputs):
            return False
        try:
            for place, (output, content) in enumerate(zip(outputs, record.outputs, strict=True)):
                if place in record.skipped:
                    output.skip()
                elif content.kind in ("file", "directory"):
                    self._store.place(content, str(output.path), linked=not output.is_shared)
                elif content.kind != "null":
                    body = self._store.body(content)
                    output.write(body.decode() if content.text else body)
        except DropflowError as error:
            attempt.log(f"the stored result cannot be taken: {error}", "WARNING")
            attempt.start_over()
            return False
        known = self._known_key(attempt.task.drop)
        if known and known not in record.keys and _is_complete(attempt):
            with suppress(DropflowError):  # so that the next run knows it before it runs
                self._store.add(msgspec.structs.replace(record, keys=(stored.key, known), name=self._name(attempt)))
        taken = TakenResult.of(attempt.task.drop, record)
        attempt.log(taken.text)
        self._log.add(taken)
        return True

    def keep(
        self,
        attempt: AttemptContext,
        stored: StoredAttempt,
        handles: Mapping[int, Handle],
        skipped: Sequence[int],
        seconds: float,
    ) -> None:
        """Store what an attempt gave, or compare it with what is stored. Not to be able to store it is not a failure.

        Raises
        ------
        ResultDiffersError
            It was to be compared, and differs.
        """
        task = attempt.task
        if task.attempt > 1:
            self._log.add(TakenResult(drop=task.drop, has_run=True))
        if self._has_changed(attempt, stored):
            attempt.log("the result is not stored for later runs: an input was changed while it was read", "WARNING")
            return
        try:
            outputs = tuple(
                StoredContent("null")
                if output.drop in skipped or output.drop not in handles
                else self._store.keep(handles[output.drop], linked=not output.is_shared)
                for output in attempt.outputs
            )
            record = Record(
                keys=(stored.key, self._known_key(task.drop) if _is_complete(attempt) else ""),
                outputs=outputs,
                skipped=tuple(place for place, output in enumerate(attempt.outputs) if output.drop in skipped),
                parts=stored.parts,
                name=self._name(attempt),
                session=self._session,
                host=self._host,
                ended=attempt.clock.now(),
                seconds=seconds,
            )
            if stored.found is not None and stored.is_compared:
                _compare(attempt, stored.found, record)
            self._store.add(record)
        except ResultDiffersError:
            raise
        except (DropflowError, OSError) as error:
            attempt.log(f"the result is not stored for later runs: {summary_of(error)}", "WARNING")
            self._log.add(TakenResult(drop=task.drop, has_run=True, lack=summary_of(error)))

    def _key(self, attempt: AttemptContext, own: Sequence[KeyPart], inputs: Sequence[_AttemptInput]) -> str:
        ports = [attempt.plans.links[edge.link].source_port for edge in attempt.task.outputs]
        return attempt_key(own, attempt.task.index, inputs, ports)

    def _has_changed(self, attempt: AttemptContext, stored: StoredAttempt) -> bool:
        """Return whether an input from outside is not what it was when the attempt began: it may have read either."""
        written = {link.target for link in attempt.plans.links}
        outside = {
            source.handle.kind
            for source in attempt.task.inputs
            if source.handle is not None and (source.handle.kind == "url" or source.template not in written)
        }
        if not outside & {"url", "file", "directory"}:
            return False
        own, inputs = self._nodes[attempt.task.template], self._inputs(attempt)
        return own is None or inputs is None or self._key(attempt, own, inputs) != stored.key

    def _name(self, attempt: AttemptContext) -> str:
        return drop_name(self._reuse.graph, attempt.name, attempt.task.index)

    def _known_key(self, drop: int) -> str:
        is_known = self._keys is not None and os.path.exists(self._reuse.keys)  # noqa: PTH110 - once an attempt
        return known_key(self._keys[drop]) if is_known else ""

    def _compare_with_plan(self, drop: int, digest: str) -> None:
        """Remove the keys known before the run, in all processes, if they were made from another content of an input.

        What is made from it would be stored under them, too.
        """
        before = "" if self._keys is None else known_key(self._keys[drop, 2:])
        if before and not digest.endswith(before):
            Path(self._reuse.keys).unlink(missing_ok=True)

    def _inputs(self, attempt: AttemptContext) -> list[_AttemptInput] | None:
        """Return port, name, class, digest and whether it is text of each input; None if one has no digest."""
        plans, inputs = attempt.plans, []
        for edge in attempt.task.inputs:
            port = plans.links[edge.link].target_port
            if port == ORDER_PORT:
                continue
            template = plans.templates[edge.template]
            handle, state = edge.handle, edge.state
            digest: str | None = f"({state.name})"
            if state is DropState.COMPLETED and handle is not None:
                digest = None
                with suppress(DropflowError, OSError):
                    digest = input_digest(handle, self._inside, trust_times=self._reuse.trust_times)
            elif state is DropState.WRITING:
                return None
            if digest is None:
                return None
            self._compare_with_plan(edge.drop, digest)
            name = input_name(template.name, handle, self._inside)
            if handle is not None and handle.missing:
                digest = f"{digest}, {handle.missing:.9g} missing"
            inputs.append((port, name, template.component, digest, handle is not None and handle.text))
        return inputs


def input_name(name: str, handle: Handle | None, inside: str) -> str:
    """Return the name of an input in a key: that of its node, or of a file outside of the session directory."""
    if handle is None or handle.kind != "file" or handle.location.startswith(inside):
        return name
    return Path(handle.location).name


def _is_complete(attempt: AttemptContext) -> bool:
    """Return whether all inputs are there: otherwise a key that was known before does not tell what they are."""
    inputs = attempt.task.inputs
    return all(
        source.state is DropState.COMPLETED and not (source.handle and source.handle.missing) for source in inputs
    )


def known_key(row: Any) -> str:
    """Return a row of keys as text; empty if the key is not known before the run."""
    return f"{int(row[0]):016x}{int(row[1]):016x}" if row[0] or row[1] else ""


def input_digest(handle: Handle, inside: str, *, trust_times: bool) -> str | None:
    """Return the digest of an input, 32 hexadecimal digits, or what stands for it; None if nothing does.

    For a content in a store it is what the store promises to change with it, after the word "version": so it is never
    that of another content, read or in another place. With `trust_times`, size and time stand for the content of a file
    outside of the session directory `inside`.

    Raises
    ------
    DropflowError
        It cannot be read, or its store cannot be reached.
    """
    if handle.kind == "url":
        version = store_version(handle.location, trust_times=trust_times)
        return f"version {key_of(handle.location, *version)}" if version else None
    if trust_times and handle.kind == "file" and not handle.location.startswith(inside):
        with suppress(OSError):
            status = Path(handle.location).stat()
            return key_of(handle.location, status.st_size, status.st_mtime_ns, status.st_mode & stat.S_IXUSR)
    return digest_of(handle)


def _shown(inputs: Sequence[_AttemptInput]) -> list[KeyPart]:
    """Return the parts of a key that inputs are, for people."""
    if len(inputs) > _MOST_INPUTS:
        return [KeyPart("inputs", str(len(inputs)), key_of(*inputs))]
    return [KeyPart("input", name, digest) for _, name, _, digest, _ in inputs]


def _compare(attempt: AttemptContext, before: Record, now: Record) -> None:
    for output, old, new in zip(attempt.outputs, before.outputs, now.outputs, strict=True):
        if (old.input_digest, old.kind) != (new.input_digest, new.kind):
            raise ResultDiffersError(
                f"{attempt.oid} gives another result for {output.oid} than the stored one: digest "
                f"{new.input_digest or 'none'} now, {old.input_digest or 'none'} in session {before.session} "
                f"on {before.host}",
                hint="if it is not a function of its inputs, set its field 'deterministic' to false; "
                "otherwise find out which input the graph does not show, such as a file that it reads by name",
            )


# How the key of an application differs from that of an earlier run.


def differences(before: Sequence[KeyPart], now: Sequence[KeyPart], store: ResultStore) -> Iterator[str]:
    """Yield what differs between two keys, in words."""
    old, new = ({(part.kind, part.name): part for part in parts} for parts in (before, now))
    for key, part in new.items():
        if key not in old:
            yield f"{_named(part)} is new"
        elif old[key].counted != part.counted:
            yield _change(old[key], part, store)
    yield from (f"{_named(part)} is gone" for key, part in old.items() if key not in new)


def input_changes(before: Sequence[KeyPart], now: Sequence[tuple[str, str]]) -> list[str]:
    """Return how inputs differ from those of an earlier run, in words.

    Parameters
    ----------
    before : sequence of KeyPart
        Those of `INPUTS` in the record.
    now : sequence of (str, str)
        Name and digest of each input; an empty digest if it is not known.
    """
    count = int(before[0].name) if before and before[0].kind == "inputs" else len(before)
    if count != len(now):
        return [f"number of inputs: {count:,} -> {len(now):,}"]
    if count != len(before):  # of so many the store has one digest
        is_known = all(digest for _, digest in now)
        return [f"one of {count:,} inputs changed, or its stored result is gone"] if is_known else []
    old, new = [part.name for part in before], [name for name, _ in now]
    if old != new:
        what = "order of inputs" if sorted(old) == sorted(new) else "inputs"
        return [f"{what}: {few(old)} -> {few(new)}"]
    pairs = zip(before, now, strict=True)
    return [
        f"input {name} changed"
        for name in dict.fromkeys(change[0] for part, change in pairs if change[1] and change[1] != part.value)
    ]


def _change(before: KeyPart, now: KeyPart, store: ResultStore) -> str:
    name = _named(now)
    if before.value == now.value:
        return f"{name}: type {before.type or 'unknown'} -> {now.type}"
    if now.kind in ("parameter", "port", "rules of inputs"):
        return f"{name}: {_short(before.value)} -> {_short(now.value)}"
    if now.kind in ("package", "python", "component", "container image"):
        return f"{name} {_short(before.value)} -> {_short(now.value)}"
    old, new = (store.read(part.detail) if part.detail else None for part in (before, now))
    line = None if old is None or new is None else first_changed_line(old.decode(), new.decode())
    return f"{name} changed" if line is None else f"{name}: line {line[0]} changed: {_short(line[1])}"


def _named(part: KeyPart) -> str:
    if part.kind in ("parameter", "function"):
        return f"{part.kind} `{part.name}`"
    return {"python": "Python"}.get(part.kind, f"{part.kind} {part.name}".strip())


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
