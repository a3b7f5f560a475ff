"""Templates, comparisons of plans, options of sessions and findings on the pages."""

import html
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from dropflow.failure import Problem, Severity
from dropflow.graph.codec import load
from dropflow.graph.notes import LOGICAL, SUBMISSION, note_logical, note_planning, submission_options
from dropflow.session_options import SubmitOptions
from tests.regular_graphs import fan
from tests.translator.templates import template
from tests.translator.web.served import EAGLE, EXAMPLES, Reply, Served
from translator.parameters import TemplateForm
from translator.template import TemplateParameter
from translator.web.forms import Form
from translator.web.launch_form import launch_groups, option_fields, posted_submission, posted_values
from translator.web.page_templates import findings_by_severity
from translator.web.records import TranslationInfo, TranslationReport


def _source(**more: Any) -> bytes:
    return json.dumps(template(**more)).encode()


def _fields(page: str) -> dict[str, str]:
    """Return the values in the form that a browser would send."""
    form = page.split('id="launch">')[1].split("</form>", maxsplit=1)[0]
    values = dict(re.findall(r'<input type="(?:text|number)" name="(value-[^"]*)" value="([^"]*)"', form))
    for name, inside in re.findall(r'<select name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected>', inside)
        if chosen and (name == "configuration" or name.startswith("value-")):
            values[name] = chosen[1]
    return {unescape(name): unescape(value) for name, value in values.items() if "." not in name}


def _filled(served: Served, page_of: Reply, **values: str) -> str:
    """Send the form of a page with other values, and return the next page."""
    page = served.page(page_of)
    sent = _fields(page) | {f"value-{name}" if name != "configuration" else name: text for name, text in values.items()}
    return served.page(served.ask("POST", f"{page_of.headers['Location']}/again", sent))


@pytest.mark.slow
def test_a_template_of_eagle_answers_with_a_form(served: Served) -> None:
    """The form has types, ranges, descriptions, uses, and configurations by name."""
    page = served.page(served.eagle(_source(), "t.graph"))

    assert "This graph is a template" in page
    assert "Refused" not in page
    assert re.search(r'type="number" name="value-n" value="" [^>]* min="1" max="64" step="1"', page)
    assert "Number of parts" in page
    assert "num_of_copies of Scatter" in unescape(page)
    assert '<option value="big">big</option>' in page
    assert _fields(page) == {"configuration": "", "value-n": "", "value-who": "world"}


@pytest.mark.slow
def test_a_filled_form_translates(served: Served) -> None:
    """With n = 4 the scatter has 9 copies; the form of the new page has the value, and can be sent again."""
    page = _filled(served, served.eagle(_source(), "t.graph"), n="4")

    assert "Translated" in page
    assert re.search(r"<dt>Drops</dt><dd>11", page)
    assert _fields(page)["value-n"] == "4"
    assert "This graph is a template" not in page


@pytest.mark.slow
def test_a_configuration_is_chosen_by_its_name(served: Served) -> None:
    """Its value of n is 8: 17 copies. A value in the form has priority over it."""
    chosen = _filled(served, served.eagle(_source(), "t.graph"), configuration="big")
    both = _filled(served, served.eagle(_source(), "t.graph"), configuration="big", n="1")

    assert re.search(r"<dt>Drops</dt><dd>19", chosen)
    assert _fields(chosen) == {"configuration": "big", "value-n": "8", "value-who": "world"}
    assert re.search(r"<dt>Drops</dt><dd>5", both)


@pytest.mark.slow
def test_values_that_cannot_be_used_come_back_in_the_form(served: Served) -> None:
    """A number out of its range is reported, and can be changed in the form that has it."""
    page = _filled(served, served.eagle(_source(), "t.graph"), n="65")

    assert "expected 1 to 64" in page
    assert _fields(page)["value-n"] == "65"


@pytest.mark.slow
def test_options_and_expressions_in_the_form(served: Served) -> None:
    """A Select has its options, and a text in a number field is an ordinary field."""
    source = json.loads(_source())
    parameters = source["nodeDataArray"][0]["fields"]
    parameters[0]["value"] = "2 * 3"
    parameters[1] |= {"type": "Select", "options": ["world", "moon <b>"]}
    page = served.page(served.eagle(json.dumps(source).encode(), "t.graph"))

    assert '<option value="world" selected>world</option>' in page
    assert "moon &lt;b&gt;</option>" in page
    assert '<input type="text" name="value-n" value="2 * 3"' in page


@pytest.mark.slow
def test_code_and_values_of_nodes_are_changed(served: Served, nested: Path) -> None:
    """The form has them without a parameter that is declared; what is as it was makes no other translation."""
    reply = served.eagle(nested)
    page, path = served.page(reply), reply.headers["Location"]
    code = unescape(page.split('name="value-Square.func_code"')[1].split(">\n", 1)[1].split("</textarea>")[0])
    same = served.ask("POST", f"{path}/again", {"value-Square.func_code": code.replace("\n", "\r\n")})
    sent = {"value-Square.func_code": code.replace("input**2", "input**3"), "value-Rows.num_of_copies": "4"}
    changed = served.ask("POST", f"{path}/again", sent)
    shown = unescape(served.page(changed))
    graph = load(served.service.graph(changed.headers["Location"].rpartition("/")[2]))
    settings = [
        argument.value
        for template in graph.templates
        for argument in template.arguments
        if argument.name == "func_code"
    ]

    assert same.headers["Location"] == path
    assert any("return input**3" in setting for setting in settings)
    assert ("return input**3" in shown, 'name="value-Rows.num_of_copies" value="4"' in shown) == (True, True)


@pytest.mark.slow
def test_a_template_over_rest(served: Served) -> None:
    """The report has the form, typed; values are sent as JSON, and the session's graph notes template and values."""
    info = served.translate(_source(), name="t.graph")
    form = info["report"]["form"]
    body = json.dumps({"values": {"n": 3, "who": "moon"}}).encode()
    path = f"/api/v1/translations/{info['id']}/fill"
    done = served.ask("POST", path, body, token=True, Content_Type="application/json").json()
    filled = served.ask("GET", f"/api/v1/translations/{done['id']}?seconds=60", token=True).json()
    wrong = served.ask("POST", path, b'{"values": [1]}', token=True, Content_Type="application/json")

    assert (info["state"], form["is_template"], form["configurations"]) == ("refused", True, ["big"])
    assert [
        (parameter["name"], parameter["type"], parameter["minimum"], parameter["maximum"])
        for parameter in form["parameters"][:1]
    ] == [("n", "Integer", 1.0, 64.0)]
    assert (filled["state"], filled["report"]["drops"]) == ("done", 9)
    assert filled["report"]["form"]["given"] == {"n": "3", "who": "moon"}
    assert wrong.status == 400


@pytest.mark.slow
def test_plans_are_compared_and_one_is_chosen(served: Served, nested: Path) -> None:
    """The table has a row for each algorithm; what is chosen is the plan of the next page, which keeps the table."""
    reply = served.eagle(nested, num_par="3")
    path = reply.headers["Location"]
    served.page(reply)
    table = served.page(
        served.ask("POST", f"{path}/again", {"algorithm": "auto", "parts": "3", "imbalance": "1", "compare": "yes"})
    )
    rows = table.split('id="plans"')[1].split("</table>")[0]
    identity = re.search(r'/translations/([^/"]*)/again"><input type="hidden" name="algorithm" value="heft"', rows)
    assert identity is not None
    chosen = served.page(served.ask("POST", f"/translations/{identity[1]}/again", {"algorithm": "heft"}))

    assert {"auto", "metis", "heft", "lookahead", "min_parts", "blocks"} <= set(re.findall(r'scope="row">(\w+)', rows))
    assert "3 parts by heft" in chosen
    assert 'id="plans"' in chosen
    assert chosen.count(">chosen<") == 1


@pytest.mark.slow
def test_plans_over_rest(served: Served, nested: Path) -> None:
    """The figures are those of the judge: what auto found is at most what HEFT needs."""
    report = served.translate(nested, parts="3", compare="true")["report"]
    times = {plan["algorithm"]: plan["makespan"] for plan in report["plans"] if not plan["problem"]}

    assert times["auto"] <= times["heft"]
    assert report["measures"]["makespan"] == times["auto"]
    assert all(plan["makespan"] >= plan["lower_bound"] > 0 for plan in report["plans"] if not plan["problem"])


# The options of a session in the form of deployment, and those of a session that is cloned.


KNOWN = SubmitOptions(replicas=3, join=False, until=2e9)


def _form(**fields: str) -> Form:
    return Form({name: value.encode() for name, value in fields.items()})


def test_a_walltime_beyond_all_dates_is_shown_as_none() -> None:
    """A clone of a session whose walltime is after the year 9999 has a page."""
    for until in (1e12, 1e18, 1e300):
        fields = {field.name: field.value for field in option_fields(SubmitOptions(until=until))}
        assert fields["until"] == ""


def test_numbers_are_shown_with_all_their_digits() -> None:
    """A form that is posted as it was shown changes nothing."""
    options = SubmitOptions(protect=1234567.25, verify_reuse=0.123456789)
    fields = {field.name: field.value for field in option_fields(options)}

    assert (fields["protect"], fields["verify_reuse"]) == ("1234567.25", "0.123456789")
    assert posted_submission(_form(options="yes", **fields), KNOWN, []) == options


def test_other_ends_of_lines_are_no_other_value() -> None:
    """Code with those of Windows is not changed by posting it: browsers choose the ends of lines."""
    code = TemplateParameter(name="Show.func_code", value="def Show():\r\n    return 1\r")
    same = _form(**{"value-Show.func_code": "def Show():\r\n    return 1\r\n"})
    other = _form(**{"value-Show.func_code": "def Show():\r\n    return 2"})

    assert posted_values(same, TemplateForm(nodes=(code,))) == {}
    assert posted_values(other, TemplateForm(nodes=(code,))) == {"Show.func_code": "def Show():\n    return 2"}


@pytest.mark.parametrize("is_read", [True, False])
def test_numbers_that_browsers_do_not_read_are_asked_for_as_texts(*, is_read: bool) -> None:
    """A field for numbers would show them as empty, and the form would give them up."""
    texts = ("5", "-.5", "00.50", "1E-3", "1e+3", "") if is_read else ("5.", "+5", "1_000", "1e999", " 5", "n * 2")
    for text in texts:
        form = TemplateForm(parameters=(TemplateParameter(name="gain", type="Float", value=1.5),), given={"gain": text})
        report = TranslationReport(state="done", form=form)
        info = TranslationInfo(id="1", name="g", state="done", report=report)
        groups = launch_groups(info, SubmitOptions(), managers=(), manager="", session="")
        fields = {field.name: field for group in groups for field in group.fields}
        assert (fields["value-gain"].kind, fields["value-gain"].value) == ("number" if is_read else "text", text)


def test_a_posted_form_has_all_options() -> None:
    """Boxes that are not checked are not posted; a form without options means those that are known."""
    problems: list[Problem] = []
    form = _form(
        options="yes", replicas="2", protect="1.5", until="2033-05-18T03:33", infrastructure_retries="0", fuse="yes"
    )
    posted = posted_submission(form, KNOWN, problems)

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
        "report_locals": "",
    }
    assert posted_submission(_form(session="s"), KNOWN, problems) == KNOWN
    assert problems == []


def test_all_fields_that_cannot_be_used_are_named() -> None:
    """Each is a finding with the name of its field."""
    problems: list[Problem] = []
    form = _form(options="yes", replicas="0", protect="-1", until="soon", infrastructure_retries="many")
    posted_submission(form, KNOWN, problems)

    assert {(problem.code, problem.where) for problem in problems} == {
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
    meta = {SUBMISSION: msgspec.json.encode(options).decode(), LOGICAL: logical}
    graph = note_planning(replace(fan(8), meta=meta), {"algorithm": "heft", "imbalance": 7, "seed": 3, "parts": 9})
    served.manager.add(graph, "made")
    served.manager.add(fan(8), "plain")
    query = {"manager": served.manager_url, "session": "made"}
    address = f"/like?{urlencode(query)}"
    made = served.ask("GET", address, token=True)
    page = html.unescape(served.page(made))
    plain = served.ask("GET", address.replace("made", "plain"), token=True)
    info = served.service.get(made.headers["Location"].rpartition("/")[2].partition("?")[0])

    assert info.submission == msgspec.structs.replace(options, until=0.0)
    known = served.service.options(info.id)
    assert (known.algorithm, known.imbalance, known.seed, known.parts) == ("heft", 7.0, 3, 1)
    assert 'name="value-Rows.num_of_copies" value="2"' in page
    assert "def f():\n  0</textarea>" in page
    assert f"<dt>Drops</dt><dd>{fan(8).drops}" in served.page(plain)
    assert served.ask("GET", address).status == 401
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
    assert submission_options(served.manager.graph("day")) == expected


# Findings on pages: one mistake in many nodes is read once.


def _problem(where: str, text: str, *, code: str = "DF104", hint: str = "", severity: str = "error") -> Problem:
    return Problem(code=code, severity=Severity(severity), where=where, text=text, hint=hint)


def test_the_same_finding_in_many_nodes_is_one_group() -> None:
    """The text is shown once, with all places."""
    ((heading, (group,)),) = findings_by_severity([_problem(name, "no num_cpus", hint="set it") for name in "abc"])

    assert (heading, group.text, group.hint) == ("3 errors", "no num_cpus", "set it")
    assert group.places == (("a", ""), ("b", ""), ("c", ""))


def test_texts_that_differ_are_kept_with_their_places() -> None:
    """Findings of one kind with different texts are one group, and a repeated one is in it once."""
    problems = [_problem("a", "no x"), _problem("b", "no y"), _problem("a", "no x")]
    ((_, (group,)),) = findings_by_severity(problems)

    assert (group.text, group.places) == ("", (("a", "no x"), ("b", "no y")))


def test_severities_codes_and_hints_are_apart() -> None:
    """Errors come first; findings with other codes or hints are other groups."""
    problems = [
        _problem("a", "old", severity="warning"),
        _problem("a", "x"),
        _problem("b", "x", hint="another"),
        _problem("c", "x", code="DF103"),
    ]
    headings = [
        (heading, [(group.code, group.hint) for group in groups]) for heading, groups in findings_by_severity(problems)
    ]

    assert headings == [
        ("3 errors", [("DF104", ""), ("DF104", "another"), ("DF103", "")]),
        ("1 warning", [("DF104", "")]),
    ]
