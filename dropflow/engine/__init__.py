"""How a session advances: a core that decides and does no I/O, and the session, runners and journal around it.

May import `dropflow.graph` and the modules below it; never `dropflow.data`, `dropflow.apps` or anything of a manager:
those come in through the protocols of `dropflow.engine.api`. Read `events` and `core` first.
"""
