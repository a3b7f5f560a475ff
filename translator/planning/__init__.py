"""The model of planning: machines, the work of a graph, and the judge of an assignment of drops to machines.

`machines` describes nodes and links, and `machines_file` reads them from TOML. `graph_work` has the times and sizes of
the drops of a graph. `simulation` runs an assignment on virtual time, and `judge` measures it. The algorithms that make
assignments are in `translator.partition`; read `judge` first.
"""
