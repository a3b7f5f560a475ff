"""Applications and their execution.

`api` is what the author of an application sees; `execute` runs one attempt; `registry` maps the class names in graphs
to our classes. May import `dropflow.data` and everything below it.
"""
