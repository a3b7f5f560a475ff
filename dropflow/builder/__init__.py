"""Logical graphs written in Python: functions become applications, and calls become edges.

Read `graph` first: `Graph` has a method for each kind of node and construct. A call checks its arguments and adds
records to the `draft`; nothing runs. `document` writes the draft as EAGLE does, with the places of `layout`. To run a
graph is to run that document, so that a saved graph and a graph that is run directly are the same.

=============  =====================================================================================
`functions`    the decorator `app`; `source` finds the code of a function, `annotations` the types of ports
`handles`      what calls return: data, values that a loop carries, groups
`constructs`   what ``with`` statements open
`arguments`    the arguments of a call, as ports and fields
`results`      the values of data after a run, or in a session of a cluster
=============  =====================================================================================
"""
