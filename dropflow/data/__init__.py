"""Stores of data drops: where contents live, how they are committed, and for how long.

`registry` maps the class names and categories in graphs to stores; `repository` owns the committed contents of a
session. May import `dropflow.engine` and everything below it.
"""
