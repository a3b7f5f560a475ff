"""Code in lines and words."""

from hypothesis import given
from hypothesis import strategies as st

from managers.web.logs import code_lines


def test_words_of_code_have_styles() -> None:
    """Keywords, names of functions, numbers, text over several lines and comments are told apart."""
    lines = code_lines('def f(x):\n    """one\n    two"""\n    return 1.5  # why\n', is_code=True)

    assert lines[0][:3] == [("word", "def"), ("", " "), ("name", "f")]
    assert lines[1][-1] == ("text", '"""one')
    assert lines[2] == [("text", '    two"""')]
    assert [piece for piece in lines[3] if piece[0]] == [("word", "return"), ("number", "1.5"), ("comment", "# why")]


@given(st.text(st.sampled_from("\"'\\\n#a1 def @"), max_size=200), st.booleans())
def test_no_letter_is_lost(text: str, is_code: bool) -> None:  # noqa: FBT001 - drawn
    """The pieces of all lines together are the text, whatever it is."""
    found = "\n".join("".join(piece for _, piece in line) for line in code_lines(text, is_code=is_code))

    assert found == text.rstrip("\n")
