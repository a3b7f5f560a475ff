"""Findings on pages: one mistake in many nodes is read once."""

from dropflow.failure import Problem, Severity
from translator.web.page_templates import findings_by_severity


def _problem(where: str, text: str, *, code: str = "DF104", hint: str = "", severity: str = "error") -> Problem:
    return Problem(code=code, severity=Severity(severity), where=where, text=text, hint=hint)


def test_the_same_finding_in_many_nodes_is_one_group() -> None:
    """The text is shown once, with all places."""
    ((heading, (group,)),) = findings_by_severity([_problem(name, "no num_cpus", hint="set it") for name in "abc"])

    assert (heading, group.text, group.hint) == ("3 errors", "no num_cpus", "set it")
    assert group.places == (("a", ""), ("b", ""), ("c", ""))


def test_texts_that_differ_are_kept_with_their_places() -> None:
    """Findings of one kind with different texts are one group, and a repeated one is in it once."""
    found = [_problem("a", "no x"), _problem("b", "no y"), _problem("a", "no x")]
    ((_, (group,)),) = findings_by_severity(found)

    assert (group.text, group.places) == ("", (("a", "no x"), ("b", "no y")))


def test_severities_codes_and_hints_are_apart() -> None:
    """Errors come first; findings with other codes or hints are other groups."""
    found = [
        _problem("a", "old", severity="warning"),
        _problem("a", "x"),
        _problem("b", "x", hint="another"),
        _problem("c", "x", code="DF103"),
    ]
    headings = [
        (heading, [(group.code, group.hint) for group in groups]) for heading, groups in findings_by_severity(found)
    ]

    assert headings == [
        ("3 errors", [("DF104", ""), ("DF104", "another"), ("DF103", "")]),
        ("1 warning", [("DF104", "")]),
    ]
