"""Unrolling by index arithmetic: a logical graph becomes an outline, and the outline becomes columns.

Each logical node has an index space, the levels of the constructs around it. Each link is a map between two such
spaces, described by a few counters with strides. The `outline` contains these maps and all sizes; only `unroll`
allocates memory for drops. Does no I/O.

===============  =======================================================================================================
`levels`         Levels: the axes of index spaces, their comparison, and the numbers in fields of constructs
`link_maps`      Index maps of links and carries: the instances that a link joins, and the levels that it pairs
`gathers`        Gathers and MKN constructs: how many inputs they take, findings about that, and their index maps
`group_bys`      Group-bys, the corner turn: the levels that they group by, findings about keys, and their index maps
`layout`         The construct around every logical node, and the levels of its index space
`wires`          Wires: the links of a logical graph between units, which have instances
`loops`          Loops: the wires that carry data from one iteration to the next, and feedback to a scatter
`node_template`  The template of a logical node, from its fields
`outline`        The outline of a physical graph: its templates, links and index maps
`adapters`       Adapters: drops between two nodes of the same kind
`services`       Services: constructs whose application runs alongside their content
`unrolling`      Unrolls an outline: writes the columns of drops and edges
===============  =======================================================================================================
"""

from translator.unroll.outline import GraphOutline, outline_of
from translator.unroll.unrolling import unroll

__all__ = ["GraphOutline", "outline_of", "unroll"]
