"""The ``dropflow`` command.

`main` has the table of commands, and in which module each is. Modules are imported when their command runs, and large
libraries within the functions that need them, so that help is quick. A command answers with an `output.Reply`. This
package may import all others, and no other package imports it.

===================  ==================================================================================================
`main`               The ``dropflow`` command: the table of its commands, and the errors of the command line
`output`             The three forms of output: a table for people, JSON for programs, only errors for scripts
`graph_options`      The options of commands that plan, submit, or take a run or a session
`option_types`       Types of options: durations, walltimes and paths
`run`                ``dropflow run``, ``resume`` and ``retry``: graphs on this machine
`graphs`             ``dropflow check``, ``convert``, ``preview`` and ``fill``: logical graphs before they are unrolled
`graph_files`        Read GRAPH of a command line and write physical graphs; ``-`` is standard input or standard output
`unroll`             ``dropflow unroll``: make a physical graph from a logical graph
`plan`               ``dropflow partition``, ``translate``, ``schedule`` and ``map``: plans of a graph
`submit`             ``dropflow submit`` and ``clone``: graphs on the nodes of a manager
`sessions`           ``dropflow sessions``, ``status``, ``watch``, ``cancel`` and others: sessions of a manager
`log`                ``dropflow log``: what the drops of a session wrote to their logs, or a manager to its own
`fetch`              ``dropflow fetch``: copy the results of a session into a directory
`downloads`          Download the contents of many results: a stream from each node, received by a thread each, and
                     written by one
`looking`            ``dropflow explain``, ``report``, ``compare`` and ``provenance``: what happened, and why
`times`              ``dropflow times`` and ``timeline``: how long attempts waited and ran, and when
`profile`            ``dropflow profile``: what the attempts of a run took, by logical node
`up`                 ``dropflow up``: a translator, a master, an island and nodes on this host
`servers`            ``dropflow node``, ``island``, ``master``, ``daemon`` and ``translator``: the servers of a cluster
`server_process`     The frame around every server process: logs, key, token, ready line, and a clean end
`doctor`             ``dropflow doctor``: what is wrong between the hosts of a cluster, and what to do
`misc`               ``dropflow keys``, ``palette``, ``completion``, ``version``, ``open`` and ``nodes``
`archive_download`   Download the results of a session into one tar or zip file
`cancel`             ``dropflow cancel``: stop a session
`composite_process`  The process of an island or a master, which differ in their options only
`connection`         The manager that a command connects to, and its credentials
`error_reply`        The reply of a command that failed: the one shape of errors, and the exit status for each
`exit_status`        The exit statuses of the command
`explain`            ``dropflow explain``: why a drop is in its state, from the journal of a local run or from the node
                     of the drop
`fetch_reply`        The answer of ``dropflow fetch``
`incoming_files`     Write contents that managers send into a directory: each file is complete, or it is not there
`info`               ``dropflow info``: the contents of a physical graph
`local_cluster`      A translator, a master, an island and nodes on this host, as processes that end with this one:
                     ``dropflow up``
`log_setup`          Logs of server processes: one line a record, as text or JSON, with session, drop, attempt and node
`manager_records`    Records of the managers that run on this host, with their tokens: one file each, readable only by
                     its owner
`manager_service`    What node, island, master and daemon share: the REST service and the announcement by zeroconf
`nodes`              ``dropflow nodes``: the nodes of a manager and their load
`paths`              Where keys, sessions and tokens are: below the directories of the user, by the XDG rules
`progress`           Progress on standard error, of sessions and of transfers: bars on a terminal, a line every few
                     seconds elsewhere
`reference`          The reference page of the command line, made from the help texts
`session_replies`    Answers about one session, and the lines about its end and its failures that several commands
                     print
`waiting_chain`      What a waiting drop waits for, down to a drop that waits for no other, as lines for people
`watch`              ``dropflow watch``: follow a session to its end, also while its manager is away
===================  ==================================================================================================
"""
