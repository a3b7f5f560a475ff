"""The translator conforms to its OpenAPI document for generated requests."""

from collections.abc import Callable
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.translator.web.served import Served
from translator.web.records import TranslatorLimits


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_generated_request_breaks_the_server(serve: Callable[..., Served], hello: Path) -> None:
    """Every answer is one of the document, and none is a server error."""
    served = serve(TranslatorLimits(kept=20, seconds=20), token=None)
    identity = str(served.translate(hello)["id"])
    for found in schemathesis.openapi.from_url(f"{served.url}/openapi.json").get_all_operations():
        operation = found.ok()
        if operation.method.upper() != "DELETE" and not operation.path.endswith("/delete"):
            _try(operation, identity)


def _try(operation: "schemathesis.APIOperation", identity: str) -> None:
    @given(case=operation.as_strategy())
    @settings(max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def one(case: "schemathesis.Case") -> None:
        if "translation" in case.path_parameters:
            case.path_parameters["translation"] = identity
        answer = case.call()
        assert answer.status_code < 500 or answer.status_code == 503, f"{case.as_curl_command()}: {answer.text}"

    one()
