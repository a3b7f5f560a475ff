"""The node manager: sessions of the engine on one host, linked to those on others.

====================  =================================================================================================
`machine`             What a node manager decides: which sessions are built, connected, started, cancelled and removed,
                      and when
`events`              Events and actions of a node manager's state machine, besides the calls of
                      `managers.machine_calls`
`sessions`            The sessions of a node: one table of all of them, hosted and finished, with one explicit phase
                      each
`host`                Carries out what `NodeMachine` decides about the sessions of a node
`hosted_session`      A session whose engine is in this process: its parts, its states, and what users see of it
`resources`           What hosted sessions need of the process that they are in: links, threads, and a place where
                      applications run
`exchange`            A session's exchange with the other nodes that hold drops of it, over links
`send`                The sending half of a session's exchange: events of drops here, as messages to the nodes of their
                      neighbours
`receive`             The receiving half of a session's exchange: messages of other nodes, as events of this node's
                      session
`contents`            Contents of drops on their way between nodes
`streams`             Streams on their way between nodes: data that are fetched while they are written
`members`             What a node does when other nodes answer, are lost, or give a session up: part of `NodeMachine`
`view_changes`        The views of the sessions of a node: part of `NodeMachine`
`view_states`         What a member of a session reports, live or stopped, and with which states it continues in the
                      next view
`peer_monitor`        Which other nodes the sessions here need, and which of them are lost: a pure state machine over a
                      clock
`draining`            A node that gives its sessions away before it ends: part of `NodeMachine`
`copies`              Copies of contents on other members of a session, so that the loss of a node does not lose them:
                      pure decisions
`copy_effects`        Carries out what `ContentCopies` and `Draining` decide about contents, for the sessions of a node
`directory`           The directory of one session on a node: which files are in it, and how they are written and read
`over`                Sessions that are over: they are found in their directories, and answer queries from there
`operations`          The operations of a node on its sessions, by name: drops, failures, logs, contents, graph
`views`               Records about a session on this node that clients get: rows, details, counts, results
`drop_pages`          Pages of the list of drops that a session has on this node: filtered, and in the order that a
                      query wants
`session_log`         The log of a session on one node: pages of the lines of all drops, found by the index of the logs
`downloads`           Downloads from a node: files, contents of many drops, directories as tar files, previews
`manager`             The node manager: a manager of the sessions of one host
`load`                How busy a host was during the last hour, and the incarnation of its node
`fetch_pool`          Threads that fetch contents from other nodes, and counts of what a session has received
`content_previews`    Previews and pictures of the contents of drops on this node, made by processes of their own
`joining_deployment`  What a node needs to join a session that runs here
`shared_files`        Files on file systems that several nodes of a session see: which of them are there as they were
                      committed
====================  =================================================================================================
"""
