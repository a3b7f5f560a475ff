"""Physical graphs in DALiuGE's JSON: a list with one dictionary for each drop, and a reproducibility record at its end.

Only for exchange with DALiuGE, EAGLE and old files; `.dfg` (`dropflow.graph.codec`) is a hundred times smaller. Three
things are lost in it: the names of the axes of index spaces, the marks of loop carries, and values of parameters that
JSON does not have (NaN becomes null). Drops that must stay together keep their axes, in a key ``placement_axes`` that
DALiuGE ignores.
"""

from dropflow.graph.interchange_read import read_pg, read_pg_stream
from dropflow.graph.interchange_write import write_pg

__all__ = ["read_pg", "read_pg_stream", "write_pg"]
