"""How the nodes of a session agree on who goes on with which drops, after a loss or another change of its members.

A *view* of a session is a number, its members, and the node of every drop. The *voters* of a view decide the next one:
its members, and witnesses that hold no drops. `view_change` is the agreement, as a pure state machine; `records` has
what voters report and decide; `replan` computes a decision from reports, and `implied_states` what they say about the
drops of lost nodes. May import messages, deployments, and the engine's pure functions. Read `view_change` first.
"""
