"""Profiles: what is read of damaged files."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadFileError
from dropflow.graph.templates import Kind
from translator.plan.measured import MeasuredNode, read_profile, write_profile


@cache
def _profile() -> bytes:
    """Return the file of a profile."""
    numbers = np.arange(50.0) + 1
    node = MeasuredNode("key", Kind.APP, (50,), np.arange(50), numbers, numbers, numbers, numbers, numbers, numbers)
    with TemporaryDirectory() as directory:
        path = Path(directory, "p.npz")
        with path.open("wb") as stream:
            write_profile([node], stream)
        return path.read_bytes()


@given(data=st.data())
def test_a_damaged_profile_is_read_or_refused(data: st.DataObject) -> None:
    """Whatever bits of the file are changed, and wherever it ends, there is no other error than that of a bad file."""
    content = bytearray(_profile())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    content = content[: data.draw(st.integers(10, len(content)))]
    with TemporaryDirectory() as directory:
        path = Path(directory, "p.npz")
        path.write_bytes(content)
        with suppress(BadFileError):
            read_profile(path)
