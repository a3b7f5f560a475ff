"""The options of its submission in the graph of a session: a note, with which the session can be cloned."""

from contextlib import suppress
from dataclasses import replace

import msgspec

from dropflow.graph.physical import PhysicalGraph, is_fused, without_fusion
from dropflow.sessions.options import SubmitOptions, chosen_of

META = "submission"
"""Name of the note in `PhysicalGraph.meta`."""


def note_options(graph: PhysicalGraph, options: SubmitOptions) -> PhysicalGraph:
    """Return the graph with the note of these options, and without fusion if they say so."""
    fused = graph if options.fuse else without_fusion(graph)
    noted = SubmitOptions(**chosen_of(options) | {"fuse": is_fused(fused)})
    return replace(fused, meta={**fused.meta, META: msgspec.json.encode(noted).decode()})


def submission_options(graph: PhysicalGraph) -> SubmitOptions:
    """Return the options that a session with this graph was submitted with; the defaults if they are not known."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(META, ""), type=SubmitOptions)
    return SubmitOptions(fuse=is_fused(graph))


def without_past_walltime(options: SubmitOptions, now: float) -> SubmitOptions:
    """Return the options for another session: without a walltime that has passed."""
    return msgspec.structs.replace(options, until=0.0) if options.until <= now else options
