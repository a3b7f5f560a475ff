"""Reading the fields of EAGLE's form."""

import pytest

from dropflow.errors import HttpError
from dropflow.failure import Severity
from tests.translator.web.served import EAGLE
from translator.options import DEFAULT_ALGORITHM
from translator.web.daliuge import read_eagle
from translator.web.forms import Form


def _form(**fields: str) -> Form:
    given = {"json_data": "{}", "lg_name": "dir/hello.graph", **EAGLE, **fields}
    return Form({name: value.encode() for name, value in given.items()})


def test_the_defaults_of_eagle_have_no_problems() -> None:
    """They mean one part by metis, with an imbalance of 0.1 %."""
    source, query, notes = read_eagle(_form())

    assert (source, query.algorithm, query.parts, query.imbalance) == (b"{}", "metis", 1, 0.1)
    assert notes == ()


@pytest.mark.parametrize(
    ("test", "rehearsal"), [("true", True), ("True", True), ("1", True), ("false", False), ("", False), ("0", False)]
)
def test_the_test_button_asks_for_a_rehearsal(test: str, rehearsal: bool) -> None:  # noqa: FBT001 - a parameter
    """EAGLE's "Test PGT" sends test=true; other spellings are accepted too."""
    _, query, notes = read_eagle(_form(test=test))

    assert (query.rehearsal, notes) == (rehearsal, ())


@pytest.mark.parametrize(("balance", "imbalance"), [("100", 0.1), ("90", 1.1), ("0", 10.1), ("101", 0.1), ("", 1.1)])
def test_the_balance_means_what_it_means_in_daliuge(balance: str, imbalance: float) -> None:
    """METIS may exceed the mean load by max(1, 101 - p) thousandths."""
    assert read_eagle(_form(max_load_imb=balance))[1].imbalance == pytest.approx(imbalance)


def test_all_bad_numbers_are_problems() -> None:
    """Each invalid number is a problem with the name of its field."""
    _, _, notes = read_eagle(_form(num_par="many", max_load_imb="1e9"))

    assert [(note.code, note.severity, note.where) for note in notes] == [
        ("PT002", Severity.ERROR, "num_par"),
        ("PT002", Severity.ERROR, "max_load_imb"),
    ]


def test_fields_without_effect_are_mentioned() -> None:
    """A field that differs from its default and has no effect is named in a note."""
    _, _, notes = read_eagle(_form(par_label="Group", rmode="4", surprise="x", test="maybe"))

    assert {note.where for note in notes} == {"par_label", "rmode", "surprise", "test"}
    assert {note.severity for note in notes} == {Severity.INFO}


def test_the_parameters_of_daliuge_steer_the_plan() -> None:
    """Each of DALiuGE's parameters becomes an option, and bad values are problems."""
    fields = {
        "algo": "min_num_parts",
        "num_islands": "4",
        "max_cpu": "6",
        "max_mem": "2000",
        "deadline": "300",
        "time_greedy": "80",
        "ptype": "1",
        "min_goal": "1",
        "swarm_size": "10",
        "topk": "20",
    }
    _, query, notes = read_eagle(_form(**fields))

    assert notes == ()
    assert (query.algorithm, query.islands, query.dop, query.memory) == ("min_num_parts", 4, 6, 2000)
    assert (query.deadline, query.greediness) == (300, 80)
    assert (query.method, query.goal, query.steps) == ("recursive", "moved", 200)
    _, query, notes = read_eagle(_form(deadline="soon", max_mem="1000", min_goal="7"))
    assert query.memory == 0
    assert {(note.code, note.where) for note in notes} == {("PT002", "deadline"), ("PT002", "min_goal")}


def test_an_algorithm_that_eagle_does_not_know_is_replaced() -> None:
    """EAGLE sends ``agl-1`` for an unknown algorithm; a note names the replacement."""
    _, query, notes = read_eagle(_form(algo="agl-1"))

    assert query.algorithm == DEFAULT_ALGORITHM
    assert "agl-1" in notes[0].text


def test_a_form_without_a_graph_is_refused() -> None:
    """The refusal names all missing fields."""
    with pytest.raises(HttpError, match="no json_data and lg_name") as refused:
        read_eagle(Form({}))

    assert refused.value.status == 422


def test_a_graph_that_is_posted_as_a_file_has_the_name_of_the_file() -> None:
    """The page of a manager posts the file itself, with the manager, which is no field without effect."""
    posted = Form({"json_data": b"{}", "manager": b"http://127.0.0.1:8002"}, {"json_data": "imaging.graph"})
    source, query, notes = read_eagle(posted)

    assert (source, query.name, notes) == (b"{}", "imaging.graph", ())
