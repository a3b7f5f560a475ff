"""How the nodes of a session agree on who goes on with which drops, after a loss or another change of its members.

A *view* of a session is a number, its members, and the node of every drop. The *voters* of a view decide the next one:
its members, and witnesses that hold no drops. May import messages, deployments, and pure functions of
`dropflow.execution` and `dropflow.sessions`.

===============  =======================================================================================================
`vote`           How the voters of a session agree on its next view: a pure state machine over a clock that is passed in
`records`        The reports of the members of a session when a view ends, and the decision about the next one
`replan`         The next view of a session from the reports of the members that go on: what runs again, and where drops
                 go
`decision_text`  The changes by a decision about a view, in words for people
`resume`         How a session that was stopped goes on: from what is left of it on its nodes to the deployment that
                 continues it
===============  =======================================================================================================
"""
