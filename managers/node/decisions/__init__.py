"""The decisions of a node manager, as one state machine without I/O: `machine.NodeMachine`, and its parts.

=================  =====================================================================================================
`machine`          Which sessions are built, connected, started, cancelled and removed, and when
`events`           Its events and actions, besides the calls of `managers.machine_calls`
`sessions`         One table of all sessions of the node, hosted and finished, with one explicit phase each
`lifecycle`        The life of each session, from the end of its preparation to its removal, and the end of the node
`peer_monitor`     Which other nodes the sessions here need, and which of them are lost
`losses`           The effects on sessions of a node when other nodes stop, restart or are lost
`members`          Operations that change the members of sessions, or how the drops are divided between them
`view_requests`    Changes of views that the node was asked for: sent to the member that decides, again until a view has
                   them
`view_changes`     Each session from one view to the next: it stops, its voters agree, it continues
`draining`         The node gives its sessions away before it ends
`copies`           Copies of contents on other members, so that the loss of a node does not lose them
=================  =====================================================================================================
"""
