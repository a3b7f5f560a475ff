"""Reads the form of EAGLE. Fields that cannot be used become findings, all of them at once."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from dropflow.errors import HttpError
from dropflow.problems import Problem, Severity
from translator.partition.steering import STEERING_FIELDS, steering
from translator.problem_codes import problem
from translator.stage_options import DEFAULT_ALGORITHM
from translator.web.form_numbers import whole_number
from translator.web.forms import Form
from translator.web.records import TranslateQuery
from translator.web.run_options import noted_planning

__all__ = ["imbalance_of", "read_eagle"]

_USED = frozenset(
    {
        "json_data",
        "lg_name",
        "manager",
        "algo",
        "num_par",
        "max_load_imb",
        "configuration",
        "settings",
        "submission",
        "planning",
        *STEERING_FIELDS,
    }
)
_YES, _NO = frozenset({"true", "1", "yes", "on"}), frozenset({"", "false", "0", "no", "off", "none", "null"})
_UNUSED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "par_label": ("", "Partition"),
        "num_parallel_task_streams": ("", "1"),
        "rmode": ("", "0", "-1"),
    }
)
"""Fields that have no effect here, with the default values of EAGLE and DALiuGE."""

_NO_ALGORITHM = "agl-1"
"""What EAGLE sends when it does not know which algorithm is chosen."""

_MOST_PARTS = 2**31 - 1


def read_eagle(form: Form) -> tuple[bytes, TranslateQuery, tuple[Problem, ...]]:
    """Return the graph in a form, how to translate it, and findings about its other fields.

    Parameters
    ----------
    form : Form
        As EAGLE posts it to ``gen_pgt``. The page of a manager posts the graph as a file, whose name is the graph's, or
        that of a session with its configuration, settings, and the options of its plan.

    Returns
    -------
    bytes
        The graph.
    TranslateQuery
        How to translate it.
    tuple of Problem
        PT002 (error) for each field that cannot be used, LG092 (a note) for each that has no effect.

    Raises
    ------
    HttpError
        422: the form has no graph.
    """
    graph_name = form.text("lg_name") or form.files.get("json_data", "")
    given = {"json_data": form.fields.get("json_data", b"").strip(), "lg_name": graph_name}
    missing = [name for name, value in given.items() if not value]
    if missing:
        names = " and ".join(missing)
        raise HttpError(
            422, f"the form has no {names}", hint="EAGLE sends both: translate from there, or upload a file"
        )
    found: list[Problem] = []
    parts = whole_number(form, "num_par", 1, least=1, most=_MOST_PARTS, found=found)
    balance = whole_number(form, "max_load_imb", 90, least=-(10**6), most=10**6, found=found)
    steered = steering({name: form.text(name) for name in STEERING_FIELDS}, found)
    algorithm = form.text("algo") or DEFAULT_ALGORITHM
    if algorithm == _NO_ALGORITHM:
        text = f"EAGLE did not send which algorithm was chosen (it sent {_NO_ALGORITHM}): {DEFAULT_ALGORITHM} is used"
        found.append(problem("LG092", text, where="algo", severity=Severity.INFO))
        algorithm = DEFAULT_ALGORITHM
    test = form.text("test").lower()
    for name, value in form.fields.items():
        if name == "test" and test in _YES | _NO:
            continue
        usual = _UNUSED.get(name)
        if name not in _USED and (usual is None or form.text(name) not in usual):
            shown = value[:40].decode(errors="replace")
            text = f"the field {name[:40]!r} ({shown!r}) has no effect here"
            found.append(problem("LG092", text, where=name[:40], severity=Severity.INFO))
    query = TranslateQuery(
        name=graph_name[-200:],
        algorithm=algorithm[:40],
        parts=parts,
        imbalance=imbalance_of(balance),
        configuration=form.text("configuration")[:200],
        settings=form.text("settings"),
        rehearsal=test in _YES,  # EAGLE's "Test PGT"
        **steered,
    )
    if noted := noted_planning(form, found):
        query = msgspec.structs.replace(query, **noted)
    return form.fields["json_data"], query, tuple(found)


def imbalance_of(balance: int) -> float:
    """Return DALiuGE's ``max_load_imb`` in per cent.

    METIS may exceed the mean by ``max(1, 101 - balance)`` thousandths.
    """
    return min(max(1, 101 - balance) / 10, 1000.0)
