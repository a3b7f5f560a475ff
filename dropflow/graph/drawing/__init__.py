"""Drawings of physical graphs: boxes of drops, where each box and each drop is, and the edges between boxes.

Pure functions over the columns of a graph. `draw` returns a `Drawing`; `columns` packs one for a browser, and
`selections` finds the drops of a path or of a failure. Read `draw` first. May import what `dropflow.graph` may.
"""
