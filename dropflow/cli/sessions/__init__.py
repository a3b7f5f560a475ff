"""Commands of ``dropflow`` for sessions of a manager: submit, follow and steer them, and get their results.

=================  =====================================================================================================
`submit`           ``dropflow submit``: graphs on the nodes of a manager
`watch`            ``dropflow watch``: follow a session to its end, also while its manager is away
`session_end`      Lines for people: how a session ended, and with which failures
`control`          ``dropflow sessions``, ``pause``, ``cancel``, ``rebalance``, ``delete`` and ``drain``
`session_replies`  Answers about one session of a manager, as several commands give them
`log`              ``dropflow log``: what the drops of a session wrote to their logs, or a manager to its own
`fetch`            ``dropflow fetch``: copy the results of a session into a directory
`downloads`        Download results, many files or one archive; the answers of ``dropflow fetch``, also about files
                   that exist already
`incoming_files`   Write contents that managers send into a directory: each file is complete, or it is not there
=================  =====================================================================================================
"""
