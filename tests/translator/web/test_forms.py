"""Reading posted forms."""

import contextlib
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import HttpError
from translator.web import forms
from translator.web.forms import Form, decode_percent, read_form

_URLENCODED = "application/x-www-form-urlencoded"
_TRICKY = st.lists(st.sampled_from([b"%", b"%4", b"%41", b"%c3%A9", b"+", b"a", b"=", b"\xff", b"%%", b"%zz"])).map(
    b"".join
)


@given(_TRICKY | st.binary(max_size=200), st.integers(min_value=3, max_value=9))
def test_percent_codes_are_decoded_as_by_urllib(data: bytes, piece: int) -> None:
    """The result does not depend on the pieces in which the decoder works."""
    patch = pytest.MonkeyPatch()
    with patch.context() as changed:
        changed.setattr(forms, "_PIECE", piece)
        assert decode_percent(data) == urllib.parse.unquote_to_bytes(data.replace(b"+", b" "))


@given(st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=50), max_size=5))
def test_an_urlencoded_form_is_read(fields: dict[str, str]) -> None:
    """The fields are those that were encoded."""
    body = urllib.parse.urlencode(fields).encode()

    assert read_form(body, _URLENCODED).fields == {name: value.encode() for name, value in fields.items()}


def _multipart(parts: list[tuple[str, bytes]], boundary: bytes = b"XyZ") -> bytes:
    lines = [b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (boundary, h.encode(), c) for h, c in parts]
    return b"".join(lines) + b"--" + boundary + b"--\r\n"


@given(st.lists(st.binary(max_size=100), max_size=6))
def test_uploads_arrive_byte_for_byte(contents: list[bytes]) -> None:
    """A part may have any bytes, also line ends and dashes."""
    boundary = b"no-content-has-this"
    body = _multipart([(f'name="f{n}"; filename="a\u00e9{n}.graph"', c) for n, c in enumerate(contents)], boundary)
    form = read_form(body, f'multipart/form-data; boundary="{boundary.decode()}"')

    assert list(form.fields.values()) == contents
    assert [form.files[f"f{n}"] for n in range(len(contents))] == [f"a\u00e9{n}.graph" for n in range(len(contents))]


@given(st.binary(max_size=300), st.sampled_from([b"", b"--XyZ", b"--XyZ\r\n", b"\r\n--XyZ\r\nContent-Disposition: x"]))
def test_garbage_is_read_or_refused(data: bytes, head: bytes) -> None:
    """Random bytes are a form or an HttpError."""
    for kind in (_URLENCODED, "multipart/form-data; boundary=XyZ"):
        with contextlib.suppress(HttpError):
            assert isinstance(read_form(head + data, kind), Form)


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b"a=1", "application/json", 415, "is not a form"),
        (b"a=1", "", 415, "is not a form"),
        (b"a=1&a=2", _URLENCODED, 400, "'a' is given twice"),
        (b"&".join(b"f%d=1" % n for n in range(200)), _URLENCODED, 400, "more than 100 fields"),
        (b"x", "multipart/form-data", 400, "names no boundary"),
        (
            b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\ncut",
            "multipart/form-data; boundary=b",
            400,
            "cut off",
        ),
    ],
)
def test_bodies_that_are_not_forms_are_refused(body: bytes, kind: str, status: int, words: str) -> None:
    """The refusal has the reason."""
    with pytest.raises(HttpError, match=words) as refused:
        read_form(body, kind)

    assert refused.value.status == status
