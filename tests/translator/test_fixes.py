"""What is mended in a graph file, and what is left as it is."""

from typing import Any

import pytest

from dropflow.failure import Problem, Severity
from translator.logical import LogicalGraph
from translator.validate import fixed


@pytest.mark.parametrize("fields", [True, 7, "text", None, {"1": {"name": "x"}}, [3, {"name": "appclass"}], {"1": 5}])
def test_a_node_with_damaged_fields_still_gets_its_category(fields: Any) -> None:
    """Fields that are no fields are left to the checks; the rest of the node is mended."""
    document = {"nodeDataArray": [{"category": "PythonApp", "fields": fields}]}
    problem = Problem(
        code="LG031", severity=Severity.WARNING, where="/nodeDataArray/0/category", text="an older category"
    )
    _, found = fixed(document, LogicalGraph(name="g", family="ojs"), [problem])

    assert [fix.code for fix in found] == ["LG031"]
