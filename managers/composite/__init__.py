"""Islands and masters: managers of managers. They keep no session of their own; they ask their children.

=====================  =================================================================================================
`machine`              An island or a master as a state machine: it owns children, sessions and deployments, and does no
                       I/O
`shared`               Objects that all parts of an island or a master share
`routines`             Operations that wait for answers of children, written as generators: a state machine without
                       threads or I/O
`children`             The children of a composite, which of them are alive, and which are asked: a state machine
                       without I/O
`connections`          The connections of a composite to its children, which carry out the requests of its state machine
`sessions`             Operations of a composite on sessions: it asks the children, remembers their answers, and merges
                       them
`session_cache`        The last answers of children about sessions: for when a child does not answer, and to number
                       changes
`deployments`          Submits graphs: plans them, and deploys the whole graph to each child with nodes of the session
`resumptions`          Continues stopped sessions: collects the contents on their nodes, plans, and deploys again
`members`              Changes of the nodes of running sessions: a composite asks a member for them, and adds new nodes
`content_queries`      The content of a session: drops, logs, data, results, journals and graphs, from the children
                       that have them
`merging`              Merging of the reports of several children about a session: pure functions over
                       `dropflow.api.session_records`
`log_merging`          Answers of several children that are merged in an order: logs, sorted drops, archives
`witness`              The votes of an island or master about the views of sessions that it deployed: part of
                       `CompositeMachine`
`witness_replacement`  A manager becomes the witness of sessions whose witness is lost
`manager`              An island or a master: a manager whose sessions are those of its children
=====================  =================================================================================================
"""
