"""The depth of JSON text, without parsing it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph import nesting as nesting_module
from dropflow.graph.nesting import nesting, too_deep


def _depth(value: Any) -> int:
    """Return how deep lists and objects of a value are nested, by recursion."""
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


_TEXTS = st.text(alphabet='\\"[]{}a/\n', max_size=8)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)),
    max_leaves=20,
)


@given(value=_VALUES, chunk=st.integers(1, 12), indent=st.sampled_from([None, 1]))
def test_depth_is_that_of_the_parsed_value(value: Any, chunk: int, indent: int | None) -> None:
    """The scan of the bytes gives the depth of the value, wherever pieces begin and whatever strings contain."""
    data = json.dumps(value, indent=indent).encode()
    depth = _depth(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting_module, "_CHUNK", chunk)

        assert nesting(data) == depth
        assert not too_deep(data, depth)
        assert depth == 0 or too_deep(data, depth - 1)


def test_a_document_that_is_too_deep_is_not_read_to_its_end() -> None:
    """Of a document that is too deep, only the beginning is read."""
    first = b"[" * 300_000

    assert 200 < nesting(first + b"[" * 10_000_000, enough=200) < 300_000
    assert nesting(first) == 300_000


@given(st.binary(max_size=60))
def test_any_bytes_have_a_depth(data: bytes) -> None:
    """For bytes that are not JSON, the result is at most the number of brackets."""
    assert 0 <= nesting(data) <= data.count(b"[") + data.count(b"{")
