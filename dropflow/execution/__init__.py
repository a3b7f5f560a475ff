"""How a session advances: a core that decides and does no I/O, and the session and the journal around it.

May import `dropflow.graph`, `dropflow.times`, `dropflow.host` and packages below them. It never imports
`dropflow.data`, `dropflow.apps`, runners or managers: a session gets these through the protocols of `interfaces`.

==================  ====================================================================================================
`interfaces`        The protocols through which a session meets storage, applications, other nodes, and places where
                    code runs
`tasks`             Attempts as messages: the task that a runner gets, what it opens meanwhile, and its result
`chains`            Chains of attempts that a runner gets as one task
`content_location`  The place of the content of a data drop: as a handle, and as the journal records it
`executor_spec`     The specification from which any process builds an executor, and how it takes results of earlier
                    runs
`decisions`         The core of a session, which decides and does no I/O: `handle(events) -> actions`
`session`           A session: the owner of a core, and the order in which decisions become effects
`inbox`             The inbox of a thread that owns a state, and calls that other threads put there
`session_inputs`    The items of the inbox of a session, and the events for the core that follow from them
`ready_attempts`    Attempts that can begin: they wait as integers, and become tasks when the runner has room for them
`priority_queue`    The order by priority, a queue in that order, and whether to wait for more urgent attempts
`walltime`          The time by which attempts must end, or not be started
`handover`          The objects that a frozen session passes to the session that continues it in the same process
`given_attempts`    The attempts of a session that its runner has, and those that were given with one before them
`content_table`     The contents of data drops, from the parts that attempts wrote to their release; events for other
                    nodes
`attempt_times`     Times at which each attempt was ready, given to a worker, begun, ended and committed, and its usage
`journal`           The journal: every event of a session, in the order in which the core processed them
`drop_explanation`  Why a drop is in its state: the drops that it waits for, or the cause
`failure_table`     Why drops of a running session failed, which infrastructure faults they had, and which nodes it has
                    lost
`statistics`        Snapshots of a session: how many drops are in each state, and where attempts are
`drop_log`          The log of one drop: a bounded file with the beginning and the end of the output of its attempts
==================  ====================================================================================================
"""
