"""The ``dropflow`` command.

`main` has the table of commands, and in which module each is. Modules are imported when their command runs, and large
libraries within the functions that need them, so that help is quick. A command answers with an `output.Reply`. This
package may import all others, and no other one imports it.

=================  =====================================================================================================
`main`             The ``dropflow`` command: the table of its commands, and the errors of the command line
`output`           The three forms of output: a table for people, JSON for programs, only errors for scripts; the
                   reply of a command that failed; columns, and commands to paste
`common_options`   The frame around every command, options that several have, and the types of their values
`candidates`       Candidates for the completion of arguments in shells
`plan_options`     The options that steer a plan: those of the stage, measurements, and the nodes of a manager
`run_or_session`   RUN of a command line: the directory of a run on this machine, or a session of a manager
`run`              ``dropflow run`` and ``resume``: graphs on this machine, and how sessions go on
`retry`            ``dropflow retry``: failed drops of a run, or of a session of a manager, again
`graphs`           ``dropflow check``, ``fill``, ``info`` and ``diff``: what is in graphs, and what is wrong with them
`plan`             ``dropflow unroll``, ``partition``, ``map``, ``schedule`` and ``translate``: from a graph to its plan
`drill`            ``dropflow drill``: how a graph ends on nodes that fail
`graph_files`      Read GRAPH of a command line and write physical graphs; ``-`` is standard input or standard output
`submit`           ``dropflow submit``: graphs on the nodes of a manager
`watch`            ``dropflow watch``: follow a session to its end, also while its manager is away
`sessions`         ``dropflow sessions``, ``pause``, ``cancel``, ``rebalance``, ``delete`` and ``drain``
`nodes`            ``dropflow nodes``: the nodes of a manager and their load
`open`             ``dropflow open``: an address that signs a browser in
`log`              ``dropflow log``: what the drops of a session wrote to their logs, or a manager to its own
`fetch`            ``dropflow fetch``: copy the results of a session into a directory
`explain`          ``dropflow explain``: why a drop is in its state, and what made it
`origin`           What runs and sessions have computed, and from what, for ``explain --origin``
`compare`          The differences of two runs or sessions, and where their contents begin to differ, for ``diff``
`times`            ``dropflow times``: how long attempts waited and ran, and when
`measured_runs`    The records of attempts in runs, sessions of managers and files of measurements
`written_files`    Files that commands write in one of several forms: traces, pictures, reports, measurements and
                   answers
`servers`          ``dropflow node``, ``island``, ``master``, ``daemon``, ``translator``, ``up``, ``down`` and
                   ``service``
`jobs`             ``dropflow launch`` and ``pool``: clusters on the hosts of a batch system, or over ssh
`doctor`           ``dropflow doctor``: what is wrong between the hosts of a cluster, and what to do
`doctor_checks`    The checks of it, which yield findings from what was collected
`replay`           ``dropflow replay``: an attempt again on this machine, also under a debugger
`keys`             ``dropflow keys``: the cluster key, which all managers of a cluster share
`palette`          ``dropflow palette``: write the palettes for EAGLE
`cache`            ``dropflow cache``: the result store
`completion`       ``dropflow completion``: a script that completes commands in a shell
`crate`            Workflow Run RO-Crates and their signatures, for ``dropflow explain --crate``
`prov`             The provenance of every drop of a session, as W3C PROV, for crates
`exit_status`      The exit statuses of the command
`incoming_files`   Write contents that managers send into a directory: each file is complete, or it is not there
`downloads`        Download results, many files or one archive, and the answers of ``dropflow fetch``
`session_end`      Lines for people: how a session ended, and with which failures
`session_replies`  Answers about one session of a manager, as several commands give them
=================  =====================================================================================================
"""
