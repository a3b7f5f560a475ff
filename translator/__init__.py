"""The translator: logical graph (JSON) -> physical graph -> partitions -> placement.

Everything is a function from value to value; `pipeline` joins all stages. May import `dropflow.graph` and what is
below it. Nothing of a graph is executed.
"""
