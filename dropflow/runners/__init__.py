"""Places where attempts run: this thread, a pool of threads, worker processes, and the workers of Dask and Ray.

A session stays in its process, with its core, journal, retries and commits; a runner executes its attempts. In the
workers of another engine, an `external_host` starts worker processes of dropflow. So attempts begin, time out, are
killed and are logged there in the same way as on this host. The packages of engines are imported when a runner starts.

The names of this package are public: authors of runners import them from here. A module is imported when one of its
names is first used.

==================  ====================================================================================================
`make_runner`       The runner of a session: threads for applications that wait; worker processes, threads or an engine
                    for all others; a limit of the processors that its attempts use
`limited_runner`    Limits how many processors the attempts of a session use at a time
`executor`          The executor: runs one attempt from its task to its result, in the calling process and thread
`attempt_limits`    Limits and usage of attempts, as far as they can be enforced and measured in the process of the
                    attempt
`borrowed_inputs`   Inputs that an attempt reads in the directories of other nodes, which may remove them while it runs
`log_router`        Routing of printed and logged text to the logs of drops (`dropflow.execution.drop_log`)
`in_process`        Attempts run in this process: in the session's own thread, the cheapest way, or in a pool of threads
`worker_pool`       Worker processes that several sessions share: started once, fed in batches, replaced when they die
`dispatcher`        Decides which worker of a pool gets which attempts, and which runner gets their results
`backlog`           The attempts of a worker process with their expected costs, and how many more it can get
`worker_process`    One worker process, as seen by the thread of its pool
`worker`            A worker process: ``python -m dropflow.runners.worker SOCKET MARKER NUMBER [VARIABLE ...]``
`worker_messages`   Messages between a pool and its worker processes (MessagePack in length-prefixed frames, contents
                    sent once), and a page of memory that they share
`external`          The runner of a session whose attempts another engine runs
`dask_engine`       Batches as tasks of Dask, on a cluster that runs already, or on a cluster in this process
`ray_engine`        Batches as calls of Ray actors, one for each processor, on a cluster that runs already, or on a new
                    one on this machine
`capacity`          The processors and the memory that the attempts of a runner, or of all runners of a pool, share
`carried_contents`  Contents that travel with batches, where workers of an engine cannot use the directory of the
                    session
`engine`            The interface of another engine, which runs batches of attempts of a session in its workers
`external_host`     The side of a session in a worker of an engine: it runs the batches that come there in worker
                    processes of dropflow
`external_store`    Blobs of bytes at URLs of a store that the session and the workers of an engine reach, such as a
                    bucket (fsspec)
`runner_choice`     The name of a runner, as people write it: ``processes``, ``dask=tcp://host:8786``,
                    ``package.module:function``
==================  ====================================================================================================
"""

from typing import TYPE_CHECKING

from dropflow.public_names import imported

if TYPE_CHECKING:
    from dropflow.errors import ResultLostError, WorkerDiedError
    from dropflow.execution.chains import not_begun, rest_not_begun
    from dropflow.execution.executor_spec import ExecutorSpec
    from dropflow.execution.interfaces import Executor, Runner
    from dropflow.execution.tasks import AttemptResult, ResultSink, StreamOpened, Task
    from dropflow.failure import Failure
    from dropflow.runners.carried_contents import ContentRelay
    from dropflow.runners.engine import Batch, BatchAnswer, Engine, EngineEvents, WorkerView
    from dropflow.runners.executor import build_executor
    from dropflow.runners.external import ExternalRunner
    from dropflow.runners.in_process import aborted
    from dropflow.stopping import stopped_after

__all__ = [
    "AttemptResult",
    "Batch",
    "BatchAnswer",
    "ContentRelay",
    "Engine",
    "EngineEvents",
    "Executor",
    "ExecutorSpec",
    "ExternalRunner",
    "Failure",
    "ResultLostError",
    "ResultSink",
    "Runner",
    "StreamOpened",
    "Task",
    "WorkerDiedError",
    "WorkerView",
    "aborted",
    "build_executor",
    "not_begun",
    "rest_not_begun",
    "stopped_after",
]

if not TYPE_CHECKING:
    _MODULES = {
        "dropflow.runners.executor": ("build_executor",),
        "dropflow.errors": ("ResultLostError", "WorkerDiedError"),
        "dropflow.execution.chains": ("not_begun", "rest_not_begun"),
        "dropflow.execution.executor_spec": ("ExecutorSpec",),
        "dropflow.execution.interfaces": ("Executor", "Runner"),
        "dropflow.execution.tasks": ("AttemptResult", "ResultSink", "StreamOpened", "Task"),
        "dropflow.failure": ("Failure",),
        "dropflow.runners.carried_contents": ("ContentRelay",),
        "dropflow.runners.engine": ("Batch", "BatchAnswer", "Engine", "EngineEvents", "WorkerView"),
        "dropflow.runners.external": ("ExternalRunner",),
        "dropflow.runners.in_process": ("aborted",),
        "dropflow.stopping": ("stopped_after",),
    }

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        return imported("dropflow.runners", _MODULES, name)

    def __dir__() -> list[str]:
        """List the public names."""
        return __all__
