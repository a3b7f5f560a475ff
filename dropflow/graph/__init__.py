"""Physical graphs as tables: templates, columns, edges, their order, slices, files and JSON.

A physical graph is a table with one row a drop, not a forest of objects: all instances of one logical node share one
template. May import `dropflow.errors`, `ids`, `states` and numpy, msgspec; does no I/O except on files and
streams it is handed. Read `physical` first.
"""
