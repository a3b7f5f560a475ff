"""Commands of ``dropflow`` for graphs before they run: what is in them, what is wrong with them, and their plans.

==============  ========================================================================================================
`check`         ``dropflow check``: all problems of a graph, and corrections that need no decision
`fill`          ``dropflow fill``: a logical graph from a template and values of its parameters
`info`          ``dropflow info``: what is in a physical graph, and what a logical graph will become
`diff`          ``dropflow diff``: the differences of two logical graphs in meaning, or of two runs or sessions
`plan`          ``dropflow unroll``, ``partition``, ``map``, ``schedule`` and ``translate``: from a graph to its plan
`plan_options`  The options that steer a plan: those of the stage, measurements, and the nodes of a manager
`drill`         ``dropflow drill``: how a graph ends on nodes that fail
`compare`       The differences of two runs or sessions, and where their contents begin to differ, for ``diff``
`graph_files`   Read GRAPH of a command line and write physical graphs; ``-`` is standard input or standard output
`palette`       ``dropflow palette``: write the palettes for EAGLE
==============  ========================================================================================================
"""
