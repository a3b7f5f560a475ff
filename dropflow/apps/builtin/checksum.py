"""Checksums of content."""

import zlib

from dropflow.apps.api import App, Context
from dropflow.engine.component import Component, Port
from dropflow.errors import AppError
from dropflow.graph.templates import Kind

__all__ = ["CRCApp"]

_BLOCK = 4 * 1024 * 1024


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
            Port(name="data", usage="InputPort", description="What the checksum is taken of."),
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
            while block := stream.read(_BLOCK):
                crc = zlib.crc32(block, crc)
                context.wait(0)
        for output in context.outputs:
            output.write(str(crc))
