"""Physical graphs for other programs: Graphviz's DOT, GraphML, and tables of comma-separated values.

These files are only written. Each format has its module; `drop_rows` reads the columns of a graph in blocks for all of
them, and `writers` finds a writer by name. Read `drop_rows` first. May import what `dropflow.graph` may.
"""
