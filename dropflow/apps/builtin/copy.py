"""Copies of contents, byte for byte."""

import shutil
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from dropflow.apps.app_interface import App, Context, InputData, OutputData
from dropflow.apps.encodings import usable
from dropflow.errors import AppError
from dropflow.graph.components import Component, Parameter, Port
from dropflow.graph.templates import Kind
from dropflow.ids import safe_name

BUFSIZE = Parameter(
    name="bufsize",
    type="Integer",
    default=65536,
    minimum=1,
    description="Bytes that are copied at a time.",
)
_BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes that are read at once for a checksum."""


class CopyApp(App):
    """Copies all inputs to every output."""

    component = Component(
        name="CopyApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.CopyApp",
        aliases=("dlg.apps.scp.ScpApp",),
        description="Copies all inputs, in order, to every output; directories are copied with all they contain. "
        "DALiuGE's copy by scp is the same application here: contents go to other nodes over their links.",
        parameters=(BUFSIZE,),
        ports=(
            Port(name="input", usage="InputPort", description="Data to copy."),
            Port(name="output", usage="OutputPort", description="All inputs, one after the other."),
        ),
    )

    streams = True

    def run(self, context: Context) -> None:
        """Copy."""
        copy_all(context, usable(context), context.outputs, self.parameters["bufsize"])


def copy_all(context: Context, inputs: Sequence[InputData], outputs: Sequence[OutputData], bufsize: int) -> None:
    """Write the content of `inputs`, one after the other, to each of `outputs`.

    Raises
    ------
    AppError
        An input is a directory and an output is not.
    """
    streams = [output for output in outputs if not output.is_directory]
    folders = [output for output in outputs if output.is_directory]
    for data in inputs:
        if data.is_directory and streams:
            raise AppError(
                f"input '{data.name}' is a directory and output '{streams[0].name}' is not",
                hint="make the output a Directory, or pack the directory into a file first",
            )
        for folder in folders:
            _copy_into(data, folder.path)
        if streams:
            _copy_stream(context, data, streams, bufsize)


def _copy_stream(context: Context, data: InputData, outputs: Sequence[OutputData], bufsize: int) -> None:
    with data.open() as stream:
        # read1 returns what is there; read would wait for a full block.
        blocks = iter(partial(getattr(stream, "read1", stream.read), bufsize), b"")
        for block in _as_text(blocks) if data.is_text else blocks:
            for output in outputs:
                output.write(block)
            context.wait(0)  # raises if the session was cancelled


def _as_text(blocks: Iterator[bytes]) -> Iterator[str | bytes]:
    """Decode blocks of text, also if a block ends in the middle of a character.

    A content that is still being written may begin as text and continue with other bytes: these are passed on
    unchanged.
    """
    decoder = getincrementaldecoder("utf-8")()
    for block in blocks:
        begun = decoder.getstate()[0]
        try:
            yield decoder.decode(block)
        except UnicodeDecodeError:
            yield begun + block
            yield from blocks
            return
    rest = decoder.getstate()[0]
    if rest:
        yield rest


def _copy_into(data: InputData, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = data.path
    if data.is_directory:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, folder / safe_name(source.name, fallback="data"))


# Checksums of content.


class CRCApp(App):
    """CRC-32 of one input."""

    component = Component(
        name="CRCApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.crc.CRCApp",
        aliases=("dlg.apps.crc.CRCStreamApp",),
        description="Writes the CRC-32 of its one input, as a decimal number in text: over a streaming link, while it "
        "is being written. DALiuGE's streaming variant is the same application here.",
        ports=(
            Port(name="data", usage="InputPort", description="Data for the checksum."),
            Port(name="crc", usage="OutputPort", type="String", encoding="utf-8", description="The checksum as text."),
        ),
    )

    streams = True

    def run(self, context: Context) -> None:
        """Read the input in blocks and write its checksum."""
        if len(context.inputs) != 1:
            raise AppError(
                f"{len(context.inputs)} inputs are connected, CRCApp takes exactly one",
                hint="give each input a CRCApp of its own",
            )
        crc = 0
        with context.inputs[0].open() as stream:
            while block := stream.read(_BLOCK_BYTES):
                crc = zlib.crc32(block, crc)
                context.wait(0)
        for output in context.outputs:
            output.write(str(crc))
