"""Failures as data: from any exception, and always encodable."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import AppError, DropflowError
from dropflow.failure import Failure, text_of

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=200)
"""Lone surrogates and control characters included."""


class _Text(str):
    """A string whose methods do not work."""

    __slots__ = ()

    def __len__(self) -> int:
        raise ValueError("no length")

    def isascii(self) -> bool:
        raise ValueError("no")

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        raise ValueError(f"no {encoding} {errors}")


def _raising(name: str, error: BaseException) -> type[Exception]:
    def refuse(_: object) -> str:
        raise error

    return type(name, (Exception,), {"__str__": refuse, "__repr__": refuse})


class _NameRefused(type):
    @property
    def __name__(cls) -> str:
        raise ValueError("no name")


class _NamelessError(Exception, metaclass=_NameRefused):
    pass


def _cyclic() -> Exception:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def _noted() -> Exception:
    error = ValueError("with notes")
    error.__notes__ = 5  # type: ignore[assignment]
    return error


HOSTILE = {
    "text raises": _raising("Broken", ValueError("no text"))(),
    "text exits": _raising("Exiting", SystemExit(3))(),
    "text interrupts": _raising("Interrupting", KeyboardInterrupt())(),
    "text recurses": _raising("Deep", RecursionError())(),
    "text is no text": type("Wrong", (Exception,), {"__str__": lambda _: 5})(),
    "text is a strange string": type("Strange", (Exception,), {"__str__": lambda _: _Text("x")})(),
    "huge": ValueError("x" * 50_000_000),
    "surrogate": ValueError("\udcff\ud800"),
    "nul": ValueError("a\0b"),
    "group": ExceptionGroup("many", [ValueError("\udcff"), _raising("Broken", ValueError())()]),
    "cycle": _cyclic(),
    "notes": _noted(),
    "no name": _NamelessError("x"),
    "module without a name": ModuleNotFoundError("x", name=5),  # type: ignore[call-overload]
    "exit with a strange status": SystemExit(_raising("Broken", ValueError())()),
    "generator exit": GeneratorExit("x"),
    "ours without text": DropflowError(None),  # type: ignore[arg-type]
    "ours with a strange text": AppError(_Text("x"), hint=5, where=_Text("y")),  # type: ignore[arg-type]
}
"""Exceptions that user code may raise."""


@pytest.mark.parametrize("case", HOSTILE)
def test_every_exception_gives_a_failure(case: str) -> None:
    """For any exception, whatever its methods do, the failure is small and can be encoded."""
    failure = Failure.of(HOSTILE[case])
    body = msgspec.msgpack.encode(failure)

    assert msgspec.msgpack.decode(body, type=Failure) == failure
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure
    assert len(body) < 60_000
    assert failure.text


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_every_text_can_be_sent_and_stored(kind: str, text: str, hint: str, detail: str) -> None:
    """A failure accepts any text; characters that UTF-8 cannot encode are escaped, others are unchanged."""
    failure = Failure(code="DF105", kind=kind, text=text, hint=hint, detail=detail)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure) == failure
    for given_text, kept in (
        (kind, failure.kind),
        (text, failure.text),
        (hint, failure.hint),
        (detail, failure.detail),
    ):
        assert kept == given_text.encode(errors="backslashreplace").decode()


def test_long_texts_are_cut() -> None:
    """A long text keeps its beginning, a long detail (a traceback) its end; both say how much is missing."""
    failure = Failure(code="DF105", kind="E", text="a" * 10_000, detail="b" * 99_999 + "end")

    assert failure.text.startswith("aaa")
    assert failure.text.endswith("[... 6050 characters left out]")
    assert failure.detail.startswith("[80052 characters left out ...]")
    assert failure.detail.endswith("bend")


def test_the_text_of_an_exception_whose_str_raises() -> None:
    """The text of an exception whose __str__ raises names the exception and what was raised."""
    assert text_of(HOSTILE["text raises"]) == "its text is not available: __str__ raised ValueError"
