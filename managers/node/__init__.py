"""The node manager: sessions on one host, linked to those on others.

===================  ===================================================================================================
`host`               Carries out what `NodeMachine` decides about the sessions of a node, and passes on what other nodes
                     send
`decisions`          What the node manager decides, as a state machine without I/O
`hosted_session`     A session that this process executes: its parts, its states, and what users see of it
`progress`           How far a hosted session has come: its state, times and statistics, and how fast its drops settle
`resources`          Resources that hosted sessions need of their process: links, threads, places for applications; its
                     load
`exchange`           A session's exchange with the other nodes that hold drops of it, over links
`content_watch`      Watches the contents of a session that other members hold copies of
`event_receiver`     Applies events of drops that arrive from other nodes: it turns their messages into events of the
                     session
`event_sender`       Events of drops here, as messages to the nodes of their neighbours
`contents`           Contents of drops on their way between nodes
`trees`              Directories as tar files that exist only on their way
`neighbours`         The nodes next to the drops of a slice, and what a session requires of the links to them
`stream_copies`            Streams on their way between nodes: data that are fetched while they are written
`view_states`        The reports of members of a session, live or stopped, and the states with which they continue in
                     the next view
`copy_effects`       Carries out what `ContentCopies` and `Draining` decide about contents, for the sessions of a node
`directory`          The directory of one session on a node: which files are in it, and how they are written and read
`finished_sessions`  Sessions that are over: they are found in their directories, and answer queries from there
`operations`         The operations of a node on its sessions: what it answers from a session, and what its state
                     machine decides
`session_records`    Records about a session on this node that clients get: rows, details, counts, results
`session_log`        The log of a session on one node: pages of the lines of all drops, found by the index of the logs
`downloads`          Downloads from a node: files, contents of many drops, directories as tar files
`previews`           Previews and pictures of contents, made by processes of their own
`manager`            The node manager: a manager of the sessions of one host
`fetch_pool`         Threads that fetch contents from other nodes, and counts of what a session has received
===================  ===================================================================================================
"""
