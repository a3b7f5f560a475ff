"""Functions of shared libraries as applications, through the C interface in ``dynlib.h``.

The library is loaded by ctypes in the process of the attempt, a worker by default: if it crashes, the worker is
replaced, and the attempt has failed. Fields of the node go to the library as texts, with ``%i0`` and ``%o0`` replaced
by paths as in commands.
"""

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_size_t, c_uint, c_void_p, py_object
from ctypes.util import find_library
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from dropflow.apps.app_interface import App, Context, InputData, OutputData
from dropflow.apps.shell import PlaceholderFiller
from dropflow.errors import AppError, BadParameterError, MissingDependencyError
from dropflow.graph.components import TIMEOUT, Component, Parameter, fold
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.states import AppState

HEADER = Path(__file__).with_name("dynlib.h")
"""The C header for authors of libraries."""

_BLOCK_BYTES = 64 * 1024
"""Bytes of a stream that a function of a library gets in one call."""
_DATA = re.compile(r"%[io](?:\d|\[|DataURL)")
_NOT_PASSED = frozenset(fold(name) for name in ("lib", "libpath", "dropclass", "base_name", "log_level", TIMEOUT.name))

_Read = CFUNCTYPE(c_size_t, c_void_p, c_size_t)
_Running = CFUNCTYPE(None)
_Done = CFUNCTYPE(None, c_int)


class _Input(Structure):
    _fields_ = (("uid", c_char_p), ("oid", c_char_p), ("name", c_char_p), ("status", c_int), ("read", _Read))


class _StreamingInput(Structure):
    _fields_ = (("uid", c_char_p), ("oid", c_char_p), ("name", c_char_p))


class _Output(Structure):
    _fields_ = (("uid", c_char_p), ("oid", c_char_p), ("name", c_char_p), ("write", _Read))


class _App(Structure):
    _fields_ = (
        ("appname", c_char_p),
        ("uid", c_char_p),
        ("oid", c_char_p),
        ("ranks", POINTER(c_int)),
        ("n_ranks", c_uint),
        ("inputs", POINTER(_Input)),
        ("n_inputs", c_uint),
        ("streaming_inputs", POINTER(_StreamingInput)),
        ("n_streaming_inputs", c_uint),
        ("outputs", POINTER(_Output)),
        ("n_outputs", c_uint),
        ("running", _Running),
        ("done", _Done),
        ("data", c_void_p),
    )


def _component(name: str, description: str) -> Component:
    return Component(
        name=name,
        kind=Kind.APP,
        category="DynlibProcApp" if name == "DynlibProcApp" else "DynlibApp",
        dropclass=f"dlg.apps.dynlib.{name}",
        description=description,
        parameters=(
            Parameter(
                name="libpath",
                aliases=("lib",),
                description="Path of the library, or its name if it is where the loader looks for libraries.",
            ),
        ),
    )


class DynlibApp(App):
    """Calls a shared library."""

    component = _component(
        "DynlibApp", "Calls init and run of a shared library, in a worker process. Other fields are its parameters."
    )
    is_streaming: ClassVar[bool] = False
    """Whether the library gets its inputs block by block."""

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        self.library = os.path.expandvars(str(self.parameters["libpath"] or "").strip())
        if not self.library:
            raise BadParameterError(
                f"the node '{template.name}' names no library",
                where=template.name,
                hint="give the path of a shared library in the field libpath",
            )

    @classmethod
    def uses(cls, argument: Argument, template: Template) -> bool:  # noqa: ARG003 - as in App
        """Return whether the library gets the argument."""
        return fold(argument.name) != fold(TIMEOUT.name)

    def needs(self) -> tuple[str, ...]:
        """Return the library."""
        return (f"library:{self.library}",)

    def run(self, context: Context) -> None:
        """Load the library, and call its functions.

        Raises
        ------
        MissingDependencyError
            The library is not there.
        BadParameterError
            It cannot be loaded, or lacks a function.
        AppError
            A function returned something other than 0.
        """
        refuse_library(self.library)
        _Call(self, context).run()


class DynlibProcApp(DynlibApp):
    """Calls a shared library; the same as `DynlibApp`, which runs in a worker process already."""

    component = _component(
        "DynlibProcApp", "As DynlibApp, which runs in a worker process already: a crash ends that process only."
    )


class DynlibStreamApp(DynlibApp):
    """Passes its inputs to a shared library while they are being written."""

    component = _component(
        "DynlibStreamApp",
        "Passes all its inputs to data_written of a shared library, one after the other and over streaming links while "
        "they are being written, and calls drop_completed at the end of each.",
    )
    streams = True
    is_streaming = True


class _Call:
    """The calls of one attempt. It keeps the objects to which C code has pointers."""

    def __init__(self, app: DynlibApp, context: Context) -> None:
        self._app = app
        self._context = context
        self._path = located(app.library)
        try:
            self._library, self._python = ctypes.CDLL(self._path), ctypes.PyDLL(self._path)
        except OSError as error:
            raise BadParameterError(
                f"the library {app.library} cannot be loaded: {error}",
                hint="build it as a shared library for this platform, and see what it links to with ldd",
            ) from error
        self._raised: list[BaseException] = []
        self._status = int(AppState.FINISHED)

    def run(self) -> None:
        """Call the functions of the library, in order."""
        with ExitStack() as stack:
            info = self._info(stack)
            reference = ctypes.byref(info)
            names = ("data_written", "drop_completed") if self._app.is_streaming else ("run2", "run")
            self._require("init2", "init")
            self._require(*names)
            parameters = self._parameters()
            self._check("init", self._init(reference, parameters))
            if self._app.is_streaming:
                self._stream(reference)
            else:
                self._check("run", self._run(reference))
            if self._status == AppState.ERROR:
                raise AppError(f"the library {self._app.library} has called done with an error", hint="see the log")

    def _init(self, reference: Any, parameters: Mapping[str, str]) -> object:
        if (init2 := self._function("init2", python=True)) is not None:
            init2.argtypes, init2.restype = (c_void_p, py_object), c_int
            return init2(reference, dict(parameters))
        self._pairs = [(c_char_p * 2)(name.encode(), value.encode()) for name, value in parameters.items()]
        self._table = (c_void_p * (len(self._pairs) + 1))(*map(ctypes.addressof, self._pairs), None)
        return self._library.init(reference, self._table)

    def _run(self, reference: Any) -> object:
        if (run2 := self._function("run2", python=True)) is not None:
            run2.argtypes, run2.restype = (c_void_p,), py_object
            return run2(reference)
        return self._library.run(reference)

    def _stream(self, reference: Any) -> None:
        written, completed = self._function("data_written"), self._function("drop_completed")
        for data in self._context.inputs:
            uid = c_char_p(data.oid.encode())
            if data.ok or data.is_open:
                with data.open() as stream:
                    while block := getattr(stream, "read1", stream.read)(_BLOCK_BYTES):
                        if written is not None:
                            written(reference, uid, c_char_p(bytes(block)), c_size_t(len(block)))
                            self._check("data_written", 0)
                        self._context.wait(0)
            if completed is not None:
                completed(reference, uid, c_int(data.state))
                self._check("drop_completed", 0)

    def _function(self, name: str, *, python: bool = False) -> Any:
        return getattr(self._python if python else self._library, name, None)

    def _require(self, *names: str) -> None:
        """Raise unless the library has one of these functions."""
        if all(self._function(name) is None for name in names):
            raise BadParameterError(
                f"the library {self._app.library} has no function {' or '.join(reversed(names))}",
                hint=f'declare it extern "C", as in {HEADER}',
            )

    def _check(self, name: str, result: object) -> None:
        """Raise the exception of a callback, or an error if the result of a function stands for an error."""
        if self._raised:
            raise self._raised[0]
        if isinstance(result, BaseException):
            raise result
        if result:
            raise AppError(f"{name} of the library {self._app.library} returned {result!r:.200}", hint="see the log")

    def _parameters(self) -> dict[str, str]:
        filling = PlaceholderFiller(self._context)
        parameters = {}
        for argument in self._app.template.arguments:
            if argument.is_port or argument.value is None or fold(argument.name) in _NOT_PASSED:
                continue
            text = str(argument.value)
            parameters[argument.name] = filling.filled_text(text) if _DATA.search(text) else text
        return parameters

    # Structures that C code reads, and functions that it calls.

    def _info(self, stack: ExitStack) -> _App:
        context = self._context
        is_streaming = self._app.is_streaming
        inputs = [_Input(*_names(source), int(source.state), self._reader(stack, source)) for source in context.inputs]
        streaming = [_StreamingInput(*_names(source)) for source in context.inputs]
        outputs = [_Output(*_names(output), self._writer(output)) for output in context.outputs]
        self._kept = (
            (c_int * len(context.index))(*context.index),
            (_Input * len(inputs))(*([] if is_streaming else inputs)),
            (_StreamingInput * len(inputs))(*(streaming if is_streaming else [])),
            (_Output * len(outputs))(*outputs),
        )
        ranks, first, second, third = self._kept
        oid = context.oid.encode()
        return _App(
            context.name.encode(),
            oid,
            oid,
            ranks,
            len(context.index),
            first,
            0 if is_streaming else len(inputs),
            second,
            len(inputs) if is_streaming else 0,
            third,
            len(outputs),
            _Running(lambda: None),
            _Done(self._done),
            None,
        )

    def _done(self, status: int) -> None:
        self._status = status

    def _reader(self, stack: ExitStack, data: InputData) -> Any:
        opened: list[Any] = []

        def read(buffer: int, size: int) -> int:
            if not opened:
                opened.append(stack.enter_context(data.open()))
            block = opened[0].read(size)
            ctypes.memmove(buffer, bytes(block), len(block))
            return len(block)

        return _Read(self._guarded(read))

    def _writer(self, output: OutputData) -> Any:
        return _Read(self._guarded(lambda buffer, size: output.write(ctypes.string_at(buffer, size))))

    def _guarded(self, function: Callable[[int, int], int]) -> Callable[[int | None, int], int]:
        """Return a callback that keeps an exception for later, and returns 0: no exception may pass through C code."""

        def call(buffer: int | None, size: int) -> int:
            if self._raised or not size:
                return 0
            try:
                return function(buffer or 0, size)
            except BaseException as error:  # noqa: BLE001 - raised when the function has returned
                self._raised.append(error)
                return 0

        return call


def _names(drop: InputData | OutputData) -> Iterator[bytes]:
    yield from (drop.oid.encode(), drop.oid.encode(), (drop.port or drop.name).encode())


def refuse_library(library: str, where: str = "") -> None:
    """Raise if a shared library is not on this host. Loads nothing.

    Raises
    ------
    MissingDependencyError
        There is no file of this path, or no library of this name where the loader looks.
    """
    if not located(library):
        raise MissingDependencyError(
            f"the shared library {library} does not exist",
            where=where,
            hint="install it, or add its directory to LD_LIBRARY_PATH of the process that runs dropflow",
            of_host=True,
        )


def located(library: str) -> str:
    """Return the path or name by which the loader finds a library; empty if it does not."""
    if "/" in library:
        return library if Path(library).is_file() else ""
    stem = library.removeprefix("lib").partition(".so")[0]
    folders = (Path(word) for word in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if word)
    files = (folder / name for folder in folders for name in (library, f"lib{stem}.so"))
    return next((str(file) for file in files if file.is_file()), "") or _installed(stem)


@cache
def _installed(stem: str) -> str:
    return find_library(stem) or ""
