"""Physical graphs as tables: templates, columns, edges, their order, slices, files and JSON.

A physical graph is a table with one row a drop, not a forest of objects: all instances of one logical node share one
template. May import `dropflow.errors`, `ids`, `states` and numpy, msgspec; does no I/O except on files and streams
that it is handed. Nothing but ``daliuge_*`` spells foreign fields.

=================  =====================================================================================================
`physical`         The physical graph: drops as columns, edges as CSR arrays
`templates`        Templates and links: the shared description of all instances of one logical node or link
`components`       The parameters and ports of applications and data classes, and the parser of their values
`build`            Two ways to make a physical graph: from whole columns, and drop by drop for small graphs
`order`            Levels, topological order, cycles and the critical path
`completeness`     How much of the data of contents is missing, after failures that were tolerated
`text_ids`         Text ids of drops, computed on demand
`slices`           The slices of a placed graph, and the drops that must stay together on one node
`reassign`         New nodes for drops whose node is lost, or gives them away: balanced at the start of work, near their
                   data later
`notes`            Notes that graph files and sessions keep: how a graph was planned and submitted, what it is from
`codec`            The `.dfg` container: a physical graph as one header and a few raw columns, the same on disk and on
                   the wire
`digests`          A number for the origin of each drop: a Merkle digest over its component, its values, and those of
                   its inputs
`differences`      Differences of two physical graphs: logical nodes, their parameters, their numbers of drops, and
                   their links
`daliuge_read`     Reading physical graphs in DALiuGE's JSON, of all versions
`daliuge_fields`   Parameters and classes in DALiuGE's JSON: argument records to `Argument` and back, and default
                   classes
`daliuge_write`    Writing a physical graph as DALiuGE's JSON: one dictionary for each drop, as a stream
`drawing`          Draws a physical graph: its boxes, where each drop is in its box, and where the boxes are
`logical_drawing`  Draws the logical graph of a physical one: its logical nodes, in frames of the constructs around them
`exports`          Physical graphs for other programs: Graphviz's DOT, GraphML, and tables of comma-separated values
`notebook`         Graphs, sessions and failures as HTML, for notebooks, and logical graphs as SVG
`nesting`          Finds how deep JSON text is nested, without parsing it
`drop_counts`      How many drops of a session failed, were taken along, were lost, and so on
=================  =====================================================================================================
"""
