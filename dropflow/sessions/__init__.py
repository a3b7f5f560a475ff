"""Sessions on this machine: one graph in one directory, run, continued, tried again and reported.

Managers have sessions of their own, and use `retry`, `make_session` and `stopped`.

==============  ========================================================================================================
`local_run`     Running one graph on this machine, in a session directory
`make_session`  The session of a graph on this machine: with a runner, a journal, and the repository of its contents
`stopped`       A session whose process has ended: its state in its directory, and how a run on this machine continues
`retry`         Which drops run again at the request of a user, with which parameters, for a run on this machine and
                for a session of managers
`report`        The report of the directory of a run, from its graph, its journal, its times and its summary
`replay`        Replay of one application outside of its session, with the inputs that it had
`summaries`     Summaries of a session for users, here or on a node: its failures, its logical nodes, and counts of its
                drops
==============  ========================================================================================================
"""
