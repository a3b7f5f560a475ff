"""The options of a session in the form of deployment, and those of a session that is cloned."""

import html
import re
from dataclasses import replace
from urllib.parse import urlencode

import msgspec
import pytest

from dropflow.api.submission_note import META, options_of
from dropflow.failure import Problem
from dropflow.graph.notes import LOGICAL, note_logical, note_planning
from dropflow.sessions.options import SubmitOptions
from dropflow.testing.drawing import fan
from tests.translator.web.served import EAGLE, EXAMPLES, Served
from translator.web.forms import Form
from translator.web.page_templates import option_fields, posted_submission

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


@pytest.mark.slow
def test_the_form_of_a_session_has_its_values_and_options(served: Served) -> None:
    """Of its logical graph, or of its drops if it has none; a walltime that has passed is left out."""
    source = (EXAMPLES / "nested-scatter-gather.graph").read_bytes()
    logical = note_logical(
        source, configuration="", settings=["Rows.num_of_copies=2", "Square.func_code=def f():\n  0"]
    )
    options = msgspec.structs.replace(KNOWN, until=1.0)
    meta = {META: msgspec.json.encode(options).decode(), LOGICAL: logical}
    graph = note_planning(replace(fan(8), meta=meta), {"algorithm": "heft", "imbalance": 7, "seed": 3, "parts": 9})
    served.manager.add(graph, "made")
    served.manager.add(fan(8), "plain")
    query = {"manager": served.manager_url, "session": "made"}
    asked = f"/like?{urlencode(query)}"
    made = served.ask("GET", asked, token=True)
    page = html.unescape(served.page(made))
    plain = served.ask("GET", asked.replace("made", "plain"), token=True)
    info = served.service.get(made.headers["Location"].rpartition("/")[2].partition("?")[0])

    assert info.submission == msgspec.structs.replace(options, until=0.0)
    known = served.service.options(info.id)
    assert (known.algorithm, known.imbalance, known.seed, known.parts) == ("heft", 7.0, 3, 1)
    assert 'name="value-Rows.num_of_copies" value="2"' in page
    assert "def f():\n  0</textarea>" in page
    assert f"<dt>Drops</dt><dd>{fan(8).drops}" in served.page(plain)
    assert served.ask("GET", asked).status == 401
    assert served.ask("GET", "/like?manager=http://evil.example&session=made", token=True).status == 400


@pytest.mark.slow
def test_options_reach_the_session_and_stay_in_a_refused_form(served: Served) -> None:
    """What was typed is in the form again, if it is refused; each field that is wrong is named."""
    graph = (EXAMPLES / "nested-scatter-gather.graph").read_text()
    answer = served.ask("POST", "/gen_pgt", {"json_data": graph, "lg_name": "a.graph", **EAGLE})
    page = served.page(answer)
    assert re.search(r'name="replicas" value="1" [^>]* min="1" max="100"', page)
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
