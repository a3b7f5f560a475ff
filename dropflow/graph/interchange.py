"""Physical graphs in DALiuGE's JSON: a list with one dictionary a drop, and a reproducibility record at its end.

A border format, for exchange with DALiuGE, EAGLE and old files. Inside, nobody needs it: `.dfg`
(`dropflow.graph.codec`) is a hundred times smaller. Three things do not survive it: the names of the axes of the index
space, the marks of loop carries, and values of parameters that JSON does not have (NaN becomes null).
"""

from dropflow.graph.interchange_read import read_pg, read_pg_stream
from dropflow.graph.interchange_write import write_pg

__all__ = ["read_pg", "read_pg_stream", "write_pg"]
