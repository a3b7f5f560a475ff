"""Managers: node, data island, master and daemon, with the links between nodes, their REST routes and pages.

`node` and `composite` are the two kinds of manager, each a state machine that `owner_thread` runs; `links` carries
messages and contents between nodes, `recovery` decides how a session goes on after a loss, `routes` and `web` answer
requests, and `simulation` runs whole clusters on virtual time.

=================  =====================================================================================================
`messages`         Every message that nodes send over links, in one file: tagged records in MessagePack, never pickles
`deployment`       Deployments: a session with its whole placed graph, packed so that managers in between need not
                   decode the graph
`planning`         Which nodes run the parts of a graph, under which name and epoch
`membership`       Membership: which processes are present, silent or lost
`uptime`           The time in which this process ran, without its pauses: a pure state machine
`machine_calls`    Calls of a manager: the requests that its state machine gets and makes, and their answers
`owner_thread`     The thread that owns the state of a manager
`keys`             The cluster key, and how the keys of users are made from it and revoked
`discovery`        Discovery of managers without configured addresses, by zeroconf (mDNS)
`manager_server`   The HTTP server of one manager: its routes, its pages and its access rules
`state_hub`        Reads the states of sessions once for all watchers of a server, and encodes each event once
`probing`          Probes of the links, REST servers, keys and clocks of other managers, as they are reached from this
                   host
`archives`         All results of a session as one archive, written while the contents arrive from their nodes
`daemon`           The daemon: one per host, starts and stops the other managers there
`child_processes`  Processes that this process starts, for ``dropflow up`` and for the daemon
`links`            Messages and contents between managers, over ZeroMQ
`recovery`         The views of sessions: votes, and what runs again where after a loss
`node`             The node manager: sessions on one host
`composite`        Islands and masters: managers of managers
`routes`           The REST routes of all managers
`web`              The pages of managers
`jobs`             Batch systems, hosts over ssh and pools
`simulation`       Clusters on virtual time, for tests and ``dropflow drill``
=================  =====================================================================================================
"""
