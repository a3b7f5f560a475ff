"""dropflow: a decentralised, event-driven dataflow runtime.

The package is laid out in rings; an outer ring imports inner ones, never the other way::

    dropflow.cli                                 commands, everything imported lazily
    dropflow.local                               one graph on this machine: catalogue + runner + session
    dropflow.data | dropflow.apps                stores of data drops; applications, their execution
    dropflow.engine                              the sans-IO core, sessions, runners, journal
    dropflow.graph                               physical graphs as tables, their files and formats
    dropflow.failure | dropflow.clock
    dropflow.errors | dropflow.ids | dropflow.states

Read `dropflow.graph.physical` first (what a graph is), then `dropflow.engine.core` (how it advances).
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
