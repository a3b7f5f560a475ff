"""Logs as pages of lines: of sessions, whose lines come from all drops on all nodes, and of managers.

Read `records` first: a line, a page, and the queries for them. `lines` has what both kinds of log do with a line,
`text` writes a whole log, and `manager_log` reads the files of a manager. The log of a session is read by its nodes
(`managers.node.session_log`) and merged above them (`managers.composite.log_merging`).
"""
