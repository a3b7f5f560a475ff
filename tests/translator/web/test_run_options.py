"""The options of a session in the form of deployment, and those of a session that is cloned."""

import msgspec
import pytest

from dropflow.api.submission_note import options_of
from dropflow.failure import Problem
from dropflow.sessions.options import SubmitOptions
from tests.translator.web.served import EAGLE, EXAMPLES, Served
from translator.web.daliuge import read_eagle
from translator.web.forms import Form
from translator.web.page_templates import noted_submission, option_fields, posted_submission

KNOWN = SubmitOptions(replicas=3, join=False, until=2e9)


def _form(**fields: str) -> Form:
    return Form({name: value.encode() for name, value in fields.items()})


def test_a_posted_form_has_all_options() -> None:
    """Boxes that are not checked are not posted; a form without options means those that are known."""
    found: list[Problem] = []
    form = _form(
        options="yes", replicas="2", protect="1.5", until="2033-05-18T03:33", infrastructure_retries="0", fuse="yes"
    )
    posted = posted_submission(form, KNOWN, found)

    assert posted == SubmitOptions(replicas=2, protect=1.5, until=1999999980.0, infrastructure_retries=0, join=False)
    assert {field.name: field.value for field in option_fields(posted)} == {
        "replicas": "2",
        "protect": "1.5",
        "until": "2033-05-18T03:33",
        "infrastructure_retries": "0",
        "retry_memory": "",
        "join": "",
        "fuse": "yes",
        "check": "",
        "reuse": "",
        "verify_reuse": "",
        "trust_times": "",
    }
    assert posted_submission(_form(session="s"), KNOWN, found) == KNOWN
    assert found == []


def test_all_fields_that_cannot_be_used_are_named() -> None:
    """Each is a finding with the name of its field."""
    found: list[Problem] = []
    form = _form(options="yes", replicas="0", protect="-1", until="soon", infrastructure_retries="many")
    posted_submission(form, KNOWN, found)

    assert {(one.code, one.where) for one in found} == {
        ("PT002", name) for name in ("replicas", "protect", "until", "infrastructure_retries")
    }


def test_the_notes_of_a_session_are_read() -> None:
    """Its plan is that of the translation; a walltime that has passed is left out; damaged notes are findings."""
    found: list[Problem] = []
    text = msgspec.json.encode(KNOWN).decode()

    assert noted_submission(_form(submission=text), 1.9e9, found) == KNOWN
    assert noted_submission(_form(submission=text), 2e9, found).until == 0.0
    assert noted_submission(_form(), 0.0, found) == SubmitOptions()
    assert found == []
    assert noted_submission(_form(submission='{"replicas": 0}'), 0.0, found) == SubmitOptions()
    fields = {"json_data": "{}", "lg_name": "a.graph", "algo": "auto"}
    _, query, notes = read_eagle(_form(**fields, planning='{"algorithm": "heft", "imbalance": 7, "seed": 3}'))
    assert (query.algorithm, query.imbalance, query.seed, notes) == ("heft", 7.0, 3, ())
    _, query, notes = read_eagle(_form(**fields, planning='{"algorithm": 1}'))
    assert [(one.code, one.where) for one in (*found, *notes)] == [("PT002", "submission"), ("PT002", "planning")]


@pytest.mark.slow
def test_options_reach_the_session_and_stay_in_a_refused_form(served: Served) -> None:
    """What was typed is in the form again, if it is refused; each field that is wrong is named."""
    graph = (EXAMPLES / "nested-scatter-gather.graph").read_text()
    form = {"json_data": graph, "lg_name": "a.graph", **EAGLE, "submission": '{"replicas": 4}'}
    answer = served.ask("POST", "/gen_pgt", form)
    page = served.page(answer)
    assert 'name="replicas" min="1" max="100" value="4"' in page
    path = answer.headers["Location"]
    typed = {"options": "yes", "infrastructure_retries": "7", "manager": served.manager_url, "session": "day"}
    refused = served.ask("POST", f"{path}/deploy", typed | {"replicas": "none", "until": "soon"}, token=True)
    assert refused.status == 400
    for words in ("replicas is &#039;none&#039;", "until is &#039;soon&#039;", 'value="7"', 'value="day"'):
        assert words in refused.text
    done = served.ask("POST", f"{path}/deploy", typed | {"replicas": "3", "check": "yes"}, token=True)

    assert done.status == 303
    expected = SubmitOptions(replicas=3, infrastructure_retries=7, check=True, join=False, fuse=False)
    assert options_of(served.manager.graph("day")) == expected
