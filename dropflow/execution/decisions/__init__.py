"""The decisions of a session, without I/O: from events to actions, which `dropflow.execution.session` executes.

==============  ========================================================================================================
`events`        The events that the core of a session takes, and the actions that it returns
`core`          The core of a session: `handle(events) -> actions`
`drop_table`    The state of every drop of a session
`streaming`     Streaming: which data drops are open, and which applications run ahead of their inputs
`drop_rules`    The rules of drops: into which states they go, and whether a failed attempt is followed by another
`continuation`  How a session continues: after its process ended, or in the same process with other drops; the drops
                that must run again after contents are lost
`invariants`    Invariants of a core between any two events
==============  ========================================================================================================
"""
