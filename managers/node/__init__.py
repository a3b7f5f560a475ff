"""The node manager: sessions on one host, linked to the parts of these sessions on other hosts.

===================  ===================================================================================================
`host`               Carries out the decisions of `NodeMachine` about the sessions of a node, and passes on messages of
                     other nodes
`decisions`          The decisions of the node manager, as a state machine without I/O
`hosted_session`     A session that this process executes: its parts, its states, and its reports for users
`progress`           The progress of a hosted session: its state, times and statistics, and how fast its drops settle
`resources`          Resources that hosted sessions need of their process: links, threads, places for applications; its
                     load
`exchange`           The exchange of a session with the other nodes that hold drops of it, over links
`content_watch`      Watches the contents of a session that other members hold copies of
`event_receiver`     Turns messages of other nodes about their drops into events of the session
`event_sender`       Events of drops here, as messages to the nodes of their neighbours
`contents`           Transfer of contents of drops between nodes
`trees`              Directories as tar files that exist only during a transfer
`neighbours`         The nodes with neighbours of the drops of a slice, and the links that a session needs to them
`stream_copies`      Transfer of streams between nodes: data that are fetched while they are written
`view_states`        The reports of members of a session, live or stopped, and the states with which they continue in
                     the next view
`copy_effects`       Carries out the decisions of `ContentCopies` and `Draining` about contents, for the sessions of a
                     node
`directory`          The directory of one session on a node: its files, and how they are written and read
`finished_sessions`  Sessions that are over: they are found in their directories, and answer queries from there
`operations`         The operations of a node on its sessions: answers from a session, and calls of its state machine
`session_records`    Records about a session on this node that clients get: rows, details, counts, results
`session_log`        The log of a session on one node: pages of the lines of all drops, found by the index of the logs
`downloads`          Downloads from a node: files, contents of many drops, directories as tar files
`previews`           Previews and pictures of contents, made by separate processes
`manager`            The node manager: a manager of the sessions of one host
`fetch_pool`         Threads that fetch contents from other nodes, and counts of what a session has received
===================  ===================================================================================================
"""
