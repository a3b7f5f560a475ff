"""Unrolling by index arithmetic: a logical graph becomes a plan, and the plan becomes columns.

Each logical node has an index space, the levels of the constructs around it. Each link is a map between two such
spaces, described by a few counters with strides. `plan` makes these descriptions and all sizes; only `unroll` allocates
memory for drops. May import `translator.logical`, `problem_codes`, `stage_options` and `dropflow.graph`; does no I/O.
Read `levels`, `index_map` and `link_maps` first, then `layout` and `plan`.
"""

from translator.unroll.columns import unroll
from translator.unroll.plan import UnrollPlan, plan

__all__ = ["UnrollPlan", "plan", "unroll"]
