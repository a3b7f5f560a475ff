"""The application of dask's tasks, as managers see it."""

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from dropflow.apps.registry import app_for
from dropflow.dask_tasks.task_app import DASK_TASK
from dropflow.graph.templates import Kind, Template

app = app_for(Template(key="t", name="t", kind=Kind.APP, component=DASK_TASK))
app.check()
print(type(app).__name__, {name.partition(".")[0] for name in sys.modules} & {"dask", "cloudpickle", "translator"})
"""


@pytest.mark.slow
def test_the_application_is_checked_without_dask() -> None:
    """A manager that checks a graph of dask imports neither dask nor the translator, which take 13 MB."""
    found = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    assert found.stdout == "DaskTask set()\n"
