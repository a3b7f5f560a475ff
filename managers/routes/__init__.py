"""The routes of a manager, written once against `dropflow.api.manager.Manager`.

==================  ===================================================================================================
`handlers`          The routes of ``/api/v1``, derived from `dropflow.api.operations`: a new route begins there, and
                    not here
`owners`            Whose a session is, and how many sessions and drops users may have at a time
`session_events`    A session as server-sent events: the whole session first, then each change, then the end
`daliuge`           DALiuGE's own paths: what its clients, EAGLE and scripts of its users call, in the same shapes
`daliuge_sessions`  Sessions as clients of DALiuGE see them: drafts that are still being built, and sessions of the
                    manager
`daliuge_json`      DALiuGE's JSON: graphs, addresses of nodes, states of drops, rows of logs, and errors by name
`metrics`           ``/metrics`` for Prometheus: nodes and sessions of a manager
==================  ===================================================================================================
"""
