"""What is computed from the records of a session: for pages of managers, for commands, and for files.

Everything here follows from the records of ``/api/v1`` (`dropflow.rest.session_records`), a graph and the times of
attempts; nothing here answers a request. Read `session_report` first: it asks a manager for all that reports,
comparisons and origins need.

====================  =================================================================================
`report`              one HTML file about a session; `bars`, `cause_groups` and `traffic_grid` are parts of it
`comparison`          two sessions: what differs; `signature` is what a session computed, by four levels
`result_origin`       the inputs, applications and versions that a result was made from
`session_times`       answers about the times of attempts; `moment_view` and `moment_drops` are a session at a moment
`find_drop`           one drop by its id or name; `drop_filter` and `drop_order` are for lists of drops
`result_paths`        the paths of results in a directory or an archive
====================  =================================================================================

May import `dropflow.rest` and what is below it; never the engine, applications or data.
"""
