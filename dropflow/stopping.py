"""How long attempts may take to stop: the bounds that the stages of a cancel add up to.

====================  ================================================================================
after the request     what happens
====================  ================================================================================
0                     Python code gets `dropflow.errors.Interrupted`, programs get SIGTERM
grace                 programs that still run get SIGKILL, with their process group
`kill_after`          the worker process of an attempt that still runs is killed, with all that it started
`stopped_after`       attempts that have not ended by then are abandoned: the kernel does not end their process
====================  ================================================================================
"""

GRACE_SECONDS = 5.0
"""How long an attempt may take to clean up, unless the request has another period."""
MARGIN_SECONDS = 0.5
"""How much later than its programs a worker process is killed, so that it can report their end."""
KILL_SECONDS = 2.0
"""How long the system may take to end processes that were killed."""


def kill_after(grace: float) -> float:
    """Return after how many seconds the worker process of an attempt is killed that has not stopped."""
    return grace + MARGIN_SECONDS


def stopped_after(grace: float) -> float:
    """Return after how many seconds no attempt is waited for any more: the bound of a cancel."""
    return kill_after(grace) + KILL_SECONDS
