"""Logical graphs written in Python: functions become applications, and calls become edges.

A call checks its arguments and adds records to a draft; nothing runs. To run a graph is to run the document that the
draft becomes, so that a saved graph and a graph that is run directly are the same.

============  ==========================================================================================================
`graph`       A graph that is written in Python, saved, and run: its nodes, and its constructs
`functions`   The decorator that makes a Python function an application of graphs
`handles`     Values that calls of a graph return: data, which have values after a run, and values that constructs pass
              on
`wiring`      How a graph is drawn: nodes, edges between them, and constructs that are open
`draft`       The nodes and edges of a graph that is being written: records that calls add to, and that become a
              document
`components`  Components of palettes from functions and classes of one's own
`results`     The values of data after a run on this machine, or in a session of a cluster
============  ==========================================================================================================
"""
