"""Places where attempts run.

This thread (`inline`), a pool of threads (`threads`), worker processes (`processes`), or threads for what waits and
processes for what computes (`mixed`).
"""
