"""The bytes of a deployment."""

from dataclasses import replace

import msgspec
import pytest

from dropflow.errors import BadFileError
from dropflow.graph.codec import dump
from dropflow.testing.drawing import fan
from managers.deployment import Deployment, Place, pack, unpack

_DEPLOYMENT = Deployment(
    session="s",
    epoch=7,
    graph="fan",
    drops=21,
    created=1.0,
    places=(Place("n1", "tcp://h:1", 3),),
    nodes=("n1",),
    notes=("moved",),
    check=True,
    dfg=b"".join(dump(replace(fan(20), places=("n1",)))),
)


def test_a_deployment_round_trips_through_bytes() -> None:
    """All fields are unchanged; the graph is a view of what was received, and not a copy."""
    packed = pack(_DEPLOYMENT)
    back = unpack(packed)

    assert back == _DEPLOYMENT
    assert back.dfg.obj is packed


def test_a_deployment_without_a_graph_has_all_other_fields() -> None:
    """The record that a node keeps has everything but the bytes of the graph."""
    assert _DEPLOYMENT.without_graph() == msgspec.structs.replace(_DEPLOYMENT, dfg=b"")


def test_a_deployment_of_another_version_is_refused() -> None:
    """Deployments of the first version, which has no number, and of later ones name the version as the problem."""
    magic, later = pack(_DEPLOYMENT)[:8], bytearray(pack(_DEPLOYMENT))
    header = msgspec.msgpack.encode({"deployment": {"session": "s"}, "sizes": {"n1": 3}})
    later[8] += 1

    for packed in (magic + len(header).to_bytes(4, "little") + header + b"abc", bytes(later)):
        with pytest.raises(BadFileError, match="another version of dropflow; this one reads version 3") as refusal:
            unpack(packed)
        assert "same version" in refusal.value.hint


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda packed: packed[:-1], "the deployment is incomplete"),
        (lambda packed: packed + b"x", "the deployment is incomplete"),
        (lambda packed: packed[:30], "the header of the deployment cannot be read"),
        (lambda packed: packed[:12], "not a deployment"),
        (lambda _: b"{}", "not a deployment"),
        (lambda _: b"", "not a deployment"),
    ],
    ids=["shorter", "longer", "cut in its header", "cut before its header", "another file", "empty"],
)
def test_bytes_that_are_no_whole_deployment_are_refused(harm: object, says: str) -> None:
    """What is missing or too much is an error, and never a deployment of another graph."""
    assert callable(harm)
    with pytest.raises(BadFileError, match=says):
        unpack(harm(pack(_DEPLOYMENT)))
