"""How much of its data an attempt lacks (`dropflow.graph.completeness`): for its code, and in files that it writes."""

import json
import os
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from dropflow.errors import AppError, optional_package
from dropflow.files import FITS_START, HDF5_START, PNG_START, ZARR_FILES

if TYPE_CHECKING:
    from dropflow.apps.app_interface import Context

VARIABLE = "DROPFLOW_MISSING"
"""Environment variable of commands with the shares by port, as JSON."""
_COMMENT = "fraction of the data that is missing"
_NEED = "headers of this format need"
_PNG_HEADER_BYTES = 8 + 25
"""Bytes of the signature of a PNG file, and of its first chunk, IHDR: text may follow them."""
_THREAD = threading.local()


def enter(attempt: "Context | None") -> None:
    """Let `missing` return the shares of this attempt in this thread; None ends that."""
    _THREAD.attempt = attempt


def missing() -> dict[str, float]:
    """Return which share of the data at each input port is missing, from 0 to 1, in a function that an attempt calls.

    A port with one image that failed, of eight, has 0.125; so has one with an image that was made from seven bands of
    eight. Empty where no attempt runs: outside of a run, and in other threads that a function has started.
    """
    attempt: Context | None = getattr(_THREAD, "attempt", None)
    return dict(json.loads(os.environ.get(VARIABLE, "{}")) if attempt is None else attempt.missing)


def write_missing(path: str | os.PathLike[str]) -> float:
    """Write the largest share of `missing` into the header of a file, and return it.

    It is the card ``MISSING`` of a FITS file, the attribute ``missing`` of an HDF5 file or zarr directory, and the text
    ``missing`` of a PNG picture.

    Parameters
    ----------
    path : str or path-like
        A file that the application has written.

    Raises
    ------
    AppError
        It has another format.
    MissingDependencyError
        The library for the format is not installed.
    """
    share, place = max(missing().values(), default=0.0), Path(path)
    start = b""
    if not place.is_dir():
        with place.open("rb") as stream:
            start = stream.read(_PNG_HEADER_BYTES)
    if start.startswith(FITS_START):
        with optional_package("astropy.io.fits", _NEED, "formats").open(place, mode="update") as units:
            units[0].header["MISSING"] = (share, _COMMENT)
    elif start.startswith(HDF5_START):
        with optional_package("h5py", _NEED, "formats").File(place, "r+") as file:
            file.attrs["missing"] = share
    elif place.is_dir() and any((place / name).exists() for name in ZARR_FILES):
        optional_package("zarr", _NEED, "formats").open(str(place), mode="r+").attrs["missing"] = share
    elif start.startswith(PNG_START):
        text = b"tEXtmissing\0" + str(share).encode()
        content = place.read_bytes()
        chunk = (len(text) - 4).to_bytes(4) + text + zlib.crc32(text).to_bytes(4)
        place.write_bytes(content[:_PNG_HEADER_BYTES] + chunk + content[_PNG_HEADER_BYTES:])
    else:
        raise AppError(
            f"{place.name} has no header for the fraction of the data that is missing",
            where=str(place),
            hint="FITS, HDF5, zarr and PNG have one; for others, write what dropflow.missing() returns",
        )
    return share
