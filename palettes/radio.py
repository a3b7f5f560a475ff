"""The entries of radio.palette: programs and libraries of radio astronomy.

Commands are BashShellApp nodes, which find the programs in PATH or beside dropflow. Functions are PyFuncApp nodes with
the source of a function of this module, which therefore imports what it uses. A port of the usage InputOutput is one
whose data the program changes: it gets a private copy, and what it leaves is the output at that port.
"""
# ruff: noqa: PLC0415 - each function is a module of its own in a graph

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from dropflow.graph.components import Parameter, Port

__all__ = ["RADIO", "RadioEntry"]
_DP3 = "{program} msin={ms} numthreads=1"


class RadioEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the palette: a command or a function, its ports and the fields that are its arguments."""

    name: str
    description: str
    command: str = ""
    function: Callable[..., Any] | None = None
    ports: tuple[Port, ...]
    fields: tuple[Parameter, ...] = ()
    memory: str = "500 MB"

    @property
    def code(self) -> str:
        """The source of the function."""
        return "" if self.function is None else inspect.getsource(self.function)


def _port(usage: str, name: str, type_: str, description: str) -> Port:
    return Port(name=name, usage=usage, type=f"Object.{type_}", encoding="path", description=description)


def _reads(name: str, type_: str, description: str) -> Port:
    return _port("InputPort", name, type_, description)


def _writes(name: str, type_: str, description: str) -> Port:
    return _port("OutputPort", name, type_, description)


def _changes(name: str, type_: str, description: str) -> Port:
    return _port("InputOutput", name, type_, f"{description} The program changes a private copy of it.")


def _field(name: str, default: str | float, description: str, *, options: tuple[str, ...] = ()) -> Parameter:
    kinds = {int: "Integer", float: "Float", str: "String"}
    kind = "Select" if options else kinds[type(default)]
    return Parameter(name=name, type=kind, default=default, description=description, options=options)


# Functions. Each has the paths of its inputs and outputs as arguments.


def update(ms: str, query: str) -> None:
    """Carry out a TaQL command that changes a table: $1 is the table."""
    from casacore import tables

    with tables.table(ms, readonly=False, ack=False) as table:
        tables.taql(query.replace("$1", "$table"), locals={"table": table})


def split(ms: str, part: str, condition: str) -> None:
    """Write the rows of a measurement set for which a TaQL condition holds, with all subtables."""
    from casacore import tables

    with tables.table(ms, ack=False) as table:
        chosen = table.query(condition) if condition else table
        if not chosen.nrows():
            raise ValueError(f"no row of {ms} fulfils the condition {condition}")
        chosen.copy(part, deep=True).close()


def concat(ms: str | list[str], whole: str) -> None:
    """Write the rows of several measurement sets of one frequency band as one, with the subtables of the first."""
    from casacore import tables

    names = ms if isinstance(ms, list) else [ms]
    tables.table(names, ack=False).copy(whole, deep=True).close()


def find_sources(image: str, catalogue: str, thresh_pix: float, thresh_isl: float) -> None:
    """Write the sources that PyBDSF finds in an image as a table in CSV."""
    import os
    import tempfile

    import bdsf

    with tempfile.TemporaryDirectory() as folder:  # PyBDSF writes its log beside the image, or here
        processed = bdsf.process_image(
            image, outdir=folder, quiet=True, ncores=1, thresh_pix=thresh_pix, thresh_isl=thresh_isl
        )
        made = os.path.join(folder, "catalogue.csv")  # noqa: PTH118
        processed.write_catalog(outfile=made, format="csv", catalog_type="srl", clobber=True)
        with open(made, encoding="utf-8") as source, open(catalogue, "w", encoding="utf-8") as target:  # noqa: PTH123
            target.write(source.read())


def arithmetic(a: str, b: str, result: str, operation: str) -> None:
    """Write a + b, a - b, a * b or a / b of two images of one shape, with the header of the first."""
    import operator

    from astropy.io import fits

    combine = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[operation]
    with fits.open(a) as first, fits.open(b) as second:
        # Integers of 8 or 16 bits, with or without a sign, do not hold all sums and differences.
        pixels = [data.astype("f8") if data.dtype.kind in "iu" else data for data in (first[0].data, second[0].data)]
        fits.writeto(result, combine(*pixels), first[0].header)


def mosaic(images: str | list[str], whole: str) -> None:
    """Write the mean of images of one projection and pixel size, each at its place; pixels without data are blank."""
    import numpy as np
    from astropy.io import fits

    names = images if isinstance(images, list) else [images]
    headers, pixels = [fits.getheader(name) for name in names], [fits.getdata(name) for name in names]
    for key in ("CRVAL1", "CRVAL2", "CDELT1", "CDELT2", "CTYPE1", "CTYPE2"):
        if any(header[key] != headers[0][key] for header in headers):
            raise ValueError(f"the images have different values of {key}: reproject them to one projection first")
    # The reference pixel of a header is a place on the sky, so differences of it are shifts of the image.
    corners = np.array([[-round(header[f"CRPIX{axis}"]) for axis in (2, 1)] for header in headers])
    shapes = np.array([pixel.shape[-2:] for pixel in pixels])
    first = corners.min(axis=0)
    size = (corners + shapes).max(axis=0) - first
    total = np.zeros((*pixels[0].shape[:-2], *size))
    count = np.zeros(total.shape)
    for pixel, corner, shape in zip(pixels, corners - first, shapes, strict=True):
        place = (..., slice(corner[0], corner[0] + shape[0]), slice(corner[1], corner[1] + shape[1]))
        total[place] += np.where(np.isfinite(pixel), pixel, 0.0)
        count[place] += np.isfinite(pixel)
    header = headers[0].copy()
    header["CRPIX1"] += int(corners[0][1] - first[1])
    header["CRPIX2"] += int(corners[0][0] - first[0])
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    fits.writeto(whole, mean.astype(np.float32), header)


def moments(cube: str, moment: str, order: int) -> None:
    """Write a moment of a cube along its third axis: 0 the integral, 1 the mean coordinate, 2 the dispersion."""
    import numpy as np
    from astropy.io import fits

    with fits.open(cube) as opened:
        header, data = opened[0].header.copy(), np.asarray(opened[0].data, np.float64)
    data = np.where(np.isfinite(data), data, 0.0)
    axis = data.ndim - 3
    step = header["CDELT3"]
    at = header["CRVAL3"] + step * (np.arange(data.shape[axis]) + 1 - header["CRPIX3"])
    at = at.reshape([-1 if number == axis else 1 for number in range(data.ndim)])
    total = data.sum(axis=axis, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (data * at).sum(axis=axis, keepdims=True) / total
        if order == 0:
            image = total * abs(step)
        elif order == 1:
            image = mean
        else:
            image = np.sqrt((data * (at - mean) ** 2).sum(axis=axis, keepdims=True) / total)
    header["CRPIX3"], header["CRVAL3"] = 1.0, float(at.mean())
    fits.writeto(moment, image.astype(np.float32), header)


_MS, _FITS, _SOLUTIONS = "ms", "fits", "h5parm"
_IN = _reads("ms", _MS, "A measurement set.")
_MODEL = _reads("model", "skymodel", "A sky model in the text format of DP3; its name ends with .skymodel or .txt.")
_GAINS = _writes("solutions", _SOLUTIONS, "The solutions, an h5parm file; its name has to end with .h5.")
_PROGRAM = _field("program", "DP3.py", "The program: DP3.py of the package dp3, or DP3.")
_SOLINT = _field(
    "solint", 1, "Time slots of one solution. gaincal fails with 0; numbers above those of the data are slow."
)
_NCHAN = _field("nchan", 0, "Channels of one solution; 0 for all.")

RADIO: tuple[RadioEntry, ...] = (
    RadioEntry(
        name="DP3 predict",
        description="Replaces the data of a measurement set by the visibilities of a sky model.",
        command=f"{_DP3} msout={{predicted}} steps=[predict] predict.sourcedb={{model}}",
        ports=(_IN, _MODEL, _writes("predicted", _MS, "A measurement set with the predicted data.")),
        fields=(_PROGRAM,),
    ),
    RadioEntry(
        name="DP3 aoflagger",
        description="Flags interference with AOFlagger.",
        command=f"strategy={{strategy}}; {_DP3} msout={{flagged}} steps=[flag] flag.type=aoflagger"
        ' ${strategy:+"flag.strategy=$strategy"}',
        ports=(_IN, _writes("flagged", _MS, "A measurement set with flags.")),
        fields=(
            _PROGRAM,
            _field(
                "strategy",
                "",
                "File with the strategy in Lua. Blank for the default of AOFlagger, which DP3 of PyPI does not find: "
                "name DP3.libs/aoflagger/strategies/generic-default.lua in its site-packages.",
            ),
        ),
    ),
    RadioEntry(
        name="DP3 gaincal",
        description="Solves for the gains of antennas in one direction.",
        command=f"{_DP3} msout= steps=[solve] solve.type=gaincal solve.sourcedb={{model}} solve.parmdb={{solutions}}"
        " solve.caltype={caltype} solve.solint={solint} solve.nchan={nchan}",
        ports=(_IN, _MODEL, _GAINS),
        fields=(
            _PROGRAM,
            _field(
                "caltype",
                "diagonal",
                "Quantity to solve for.",
                options=("diagonal", "fulljones", "phaseonly", "scalarphase", "amplitudeonly", "scalaramplitude"),
            ),
            _SOLINT,
            _NCHAN,
        ),
    ),
    RadioEntry(
        name="DP3 ddecal",
        description="Solves for the gains of antennas in each direction (patch) of the sky model.",
        command=f"{_DP3} msout= steps=[solve] solve.type=ddecal solve.sourcedb={{model}} solve.h5parm={{solutions}}"
        " solve.mode={mode} solve.solint={solint} solve.nchan={nchan} solve.maxiter={maxiter}",
        ports=(_IN, _MODEL, _GAINS),
        fields=(
            _PROGRAM,
            _field(
                "mode",
                "diagonal",
                "Quantity to solve for.",
                options=("diagonal", "fulljones", "phaseonly", "scalar", "scalarphase", "amplitudeonly"),
            ),
            _SOLINT,
            _NCHAN,
            _field("maxiter", 50, "Largest number of iterations."),
        ),
    ),
    RadioEntry(
        name="DP3 applycal",
        description="Corrects the data of a measurement set by solutions.",
        command=f"{_DP3} msout={{corrected}} steps=[apply] apply.type=applycal apply.parmdb={{solutions}}"
        " apply.correction={correction}",
        ports=(
            _IN,
            _reads("solutions", _SOLUTIONS, "The solutions of gaincal or ddecal; the name has to end with .h5."),
            _writes("corrected", _MS, "The corrected measurement set."),
        ),
        fields=(
            _PROGRAM,
            _field("correction", "phase000", "The table of solutions, such as amplitude000 or phase000."),
        ),
    ),
    RadioEntry(
        name="DP3 average",
        description="Averages a measurement set in time and frequency.",
        command=f"{_DP3} msout={{averaged}} steps=[average] average.timestep={{timestep}}"
        " average.freqstep={freqstep}",
        ports=(_IN, _writes("averaged", _MS, "The averaged measurement set.")),
        fields=(
            _PROGRAM,
            _field("timestep", 1, "Time slots that become one."),
            _field("freqstep", 1, "Channels that become one."),
        ),
    ),
    RadioEntry(
        name="WSClean",
        memory="2 GB",
        description="Images and cleans measurement sets, and writes the model into their column MODEL_DATA.",
        command='work=$(mktemp -d) && wsclean -j 1 -temp-dir "$work" -name "$work/band" -pol {pol} -size {size} {size}'
        " -scale {scale} -weight briggs {robust} -niter {niter} -auto-threshold {auto_threshold} -mgain {mgain} {ms}"
        ' && mv "$work/band-image.fits" {image}; status=$?; rm -rf "$work"; exit $status',
        ports=(_changes("ms", _MS, "A measurement set."), _writes("image", _FITS, "The restored image.")),
        fields=(
            _field("size", 1024, "Pixels on each side of the image."),
            _field("scale", "5asec", "Size of a pixel, with its unit."),
            _field("pol", "I", "Polarisation."),
            _field("robust", 0.0, "Robustness of the weights: -2 uniform, 2 natural."),
            _field("niter", 10000, "Largest number of clean components; 0 for the dirty image."),
            _field("auto_threshold", 3.0, "Where cleaning ends, in standard deviations of the noise."),
            _field("mgain", 0.8, "Fraction of the peak that is cleaned before the model is subtracted from the data."),
        ),
    ),
    RadioEntry(
        name="TaQL update",
        description="Changes a table by a TaQL command; needs python-casacore.",
        function=update,
        ports=(_changes("ms", _MS, "A measurement set or another table."),),
        fields=(_field("query", "update $1 set FLAG=False", "The command; $1 is the table."),),
    ),
    RadioEntry(
        name="Split measurement set",
        description="Copies the rows of a measurement set that fulfil a TaQL condition; needs python-casacore.",
        function=split,
        ports=(_IN, _writes("part", _MS, "The measurement set of these rows.")),
        fields=(_field("condition", "ANTENNA1 != ANTENNA2", "The condition; blank for all rows."),),
    ),
    RadioEntry(
        name="Concatenate measurement sets",
        description="Joins the rows of measurement sets of one band; needs python-casacore.",
        function=concat,
        ports=(
            _reads("ms", _MS, "The measurement sets; connect several, or all copies of a scatter."),
            _writes("whole", _MS, "The measurement set of all rows."),
        ),
    ),
    RadioEntry(
        name="PyBDSF",
        memory="1 GB",
        description="Finds the sources of an image; needs bdsf.",
        function=find_sources,
        ports=(_reads("image", _FITS, "An image."), _writes("catalogue", "csv", "The sources, a table in CSV.")),
        fields=(
            _field("thresh_pix", 5.0, "Threshold of the peak of a source, in standard deviations of the noise."),
            _field("thresh_isl", 3.0, "Threshold of the pixels around it."),
        ),
    ),
    RadioEntry(
        name="FITS arithmetic",
        description="Adds, subtracts, multiplies or divides two images pixel by pixel; needs astropy.",
        function=arithmetic,
        ports=(
            _reads("a", _FITS, "The first image."),
            _reads("b", _FITS, "The second image."),
            _writes("result", _FITS, "The result, with the header of the first."),
        ),
        fields=(_field("operation", "+", "Operation to compute.", options=("+", "-", "*", "/")),),
    ),
    RadioEntry(
        name="FITS mosaic",
        description="Joins images of one projection, and averages where they overlap; needs astropy.",
        function=mosaic,
        ports=(
            _reads("images", _FITS, "The images; connect several, or all copies of a scatter."),
            _writes("whole", _FITS, "The mosaic."),
        ),
    ),
    RadioEntry(
        name="FITS moments",
        description="Computes a moment of a cube along its spectral axis; needs astropy.",
        function=moments,
        ports=(_reads("cube", _FITS, "A cube with the spectral axis third."), _writes("moment", _FITS, "The image.")),
        fields=(_field("order", 0, "0 for the integral, 1 for the mean coordinate, 2 for the dispersion."),),
    ),
)
"""All entries, in the order of the palette."""
