"""Formats of files and directories at the ports of functions: pictures, cubes, tables, arrays, measurement sets.

===========  =======================================  =======================================================
format       value that a function gets               values that it may return
===========  =======================================  =======================================================
``fits``     `astropy.io.fits.HDUList`, in memory     the same, one HDU, a table of astropy, an array
``hdf5``     `h5py.File`, open for reading            arrays by name, also nested
``zarr``     a group or array of zarr, for reading    arrays by name, also nested; an array
``xarray``   `xarray.Dataset`, in memory (NetCDF)     the same, a DataArray
``parquet``  `pandas.DataFrame`, also of a directory  the same, columns by name
``csv``      `pandas.DataFrame`                       the same, columns by name
``image``    `PIL.Image.Image`                        the same, an array of bytes
``ms``       path of a measurement set, as text       a path
===========  =======================================  =======================================================

Instead of a value, a function may return the path of a file in the format, which is copied. If it has an argument named
after the output port, the argument is a path to which it writes itself. Contents are checked when they are written and
read: a content of another format is an error that names the file, the expected format and the found one.

The libraries (the extra ``formats``) are imported when a port needs them.
"""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dropflow.data.storage_errors import storage_errors
from dropflow.errors import MissingDependencyError, optional_package
from dropflow.failure import summary_of
from dropflow.files import FITS_START, HDF5_START, NPY_START, PARQUET_START, PNG_START, ZARR_FILES, ZIP_START

if TYPE_CHECKING:
    from numpy.typing import NDArray
_STARTS = (
    (FITS_START, "a FITS file"),
    (HDF5_START, "an HDF5 file"),
    (b"CDF\x01", "a NetCDF 3 file"),
    (b"CDF\x02", "a NetCDF 3 file"),
    (b"CDF\x05", "a NetCDF 3 file"),
    (PARQUET_START, "a Parquet file"),
    (PNG_START, "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"II*\x00", "a picture"),
    (b"MM\x00*", "a picture"),
    (NPY_START, "an npy array"),
    (b"\x1f\x8b", "a gzip file"),
    (ZIP_START, "a zip file"),
    (b"\x80\x04\x95", "a pickle"),
    (b"\x80\x05\x95", "a pickle"),
)
_HEAD_BYTES = 4096
"""Bytes at the beginning of a file from which its format is recognised."""
_ARROW = ("pyarrow", "pyarrow.dataset")
_MISSING = {"boolean", *(f"{sign}Int{size}" for sign in ("", "U") for size in (8, 16, 32, 64))}
"""Types of pandas whose values may be missing."""


class CannotHoldError(ValueError):
    """A value or a content that does not fit an encoding. `dropflow.apps.encodings` turns it into an `AppError`."""


class DamagedError(CannotHoldError):
    """A content that begins like a format, but cannot be read by the library of the format."""


@dataclass(frozen=True)
class FormatPath:
    """Annotation of an argument of a function that is the path of a content, as text.

    Attributes
    ----------
    encoding : str
        ``path`` for any content, else a format.
    is_output : bool
        Whether the function writes there.
    """

    encoding: str = "path"
    is_output: bool = False


InputPath = Annotated[str, FormatPath()]
"""Annotation of an argument: the path of an input with any content."""

OutputPath = Annotated[str, FormatPath(is_output=True)]
"""Annotation of an argument: a path to which the function writes an output, as ``savefig`` does."""

FitsPath = Annotated[str, FormatPath("fits", is_output=True)]
"""Annotation of an argument: a path to which the function writes a FITS file."""

MeasurementSet = Annotated[str, FormatPath("ms")]
"""Annotation of an argument: the path of a measurement set, to be read."""


@dataclass(frozen=True)
class _Format:
    """How one format is recognised, read and written.

    Attributes
    ----------
    kinds : tuple of str
        Results of `what_is` for contents in the format.
    packages : tuple of str
        The module that reads and writes it, and further modules that it needs for this format.
    read : callable
        Returns the value of a file or directory; gets the module and the path.
    write : callable
        Writes a value to a path that does not exist; gets the module, the value and the path.
    """

    kinds: tuple[str, ...]
    packages: tuple[str, ...]
    read: Callable[[Any, str], Any]
    write: Callable[[Any, Any, str], None]


def read_format(name: str, path: Path) -> Any:
    """Return the value of a file or directory in a format.

    Raises
    ------
    CannotHoldError
        It is not in this format.
    DamagedError
        Its library cannot read it.
    MissingDependencyError
        The library for the format is not installed.
    """
    refuse_other_format(name, path)
    library = _library(name)
    try:
        return FORMATS[name].read(library, str(path))
    except CannotHoldError as problem:
        raise DamagedError(f"{path} is damaged: {problem}") from problem
    except Exception as problem:  # libraries raise nearly anything for damaged files
        raise DamagedError(f"{path} is damaged: {summary_of(problem)}") from problem


def write_format(name: str, value: Any, path: Path) -> None:
    """Write a value in a format to a path that does not exist. If it is the path of a file, copy that file.

    Raises
    ------
    CannotHoldError
        The format cannot hold the value, or the named file is not in this format.
    MissingDependencyError
        The library for the format is not installed.
    StorageError
        The disk is full, for example.
    """
    if isinstance(value, str | os.PathLike):
        refuse_other_format(name, Path(value))
        copy_content(Path(value), path)
        return
    try:
        with storage_errors("write", path):
            if isinstance(value, bytes):
                path.write_bytes(value)
            else:
                FORMATS[name].write(_library(name), value, str(path))
    except (MissingDependencyError, CannotHoldError):
        raise
    except (TypeError, ValueError, KeyError, AttributeError, NotImplementedError) as problem:
        raise CannotHoldError(summary_of(problem)) from problem
    refuse_other_format(name, path)


def copy_content(source: Path, target: Path) -> None:
    """Copy a file or directory to the path of an output, unless it is there already.

    Raises
    ------
    StorageError
        The disk is full, for example.
    """
    if target.exists() and source.samefile(target):
        return
    with storage_errors("copy to", target):
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)


def refuse_other_format(name: str, path: Path) -> None:
    """Raise if a file or directory is certainly not in a format.

    Raises
    ------
    CannotHoldError
        Names the path, the format and what was found.
    """
    form, kind = FORMATS[name], what_is(path)
    if kind not in form.kinds:
        raise CannotHoldError(f"{path} is {kind}, expected {' or '.join(form.kinds)}")


def what_is(path: Path) -> str:
    """Return the kind of a content, in words, from its first bytes or the names in the directory."""
    if path.is_dir():
        return _what_directory(path)
    if not path.exists():
        return "missing"
    with storage_errors("read", path), path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    kind = next((kind for start, kind in _STARTS if head.startswith(start)), "")
    if kind or not head:
        return kind or "empty"
    try:
        head.decode()
    except UnicodeDecodeError as problem:
        if problem.start < len(head) - 3:  # a character may be cut
            return "a file of an unknown format"
    return "text"


def _what_directory(path: Path) -> str:
    from dropflow.preview.measurement_set import casacore_kind  # noqa: PLC0415 - only for a message
    from dropflow.preview.parquet import is_parquet_table  # noqa: PLC0415

    if kind := casacore_kind(path):
        return f"a {kind}"
    if any((path / name).is_file() for name in ZARR_FILES):
        return "a zarr directory"
    names = (str(file.relative_to(path)) for file in path.rglob("*") if not file.is_dir())
    return "a directory of Parquet files" if is_parquet_table(names) else "a directory"


def _library(name: str) -> Any:
    """Import the modules of a format, and return the module that reads and writes it."""
    first, *_ = [
        optional_package(package, f"the format '{name}' needs", "formats") for package in FORMATS[name].packages
    ]
    return first


def _array(value: Any) -> "NDArray[Any]":
    import numpy as np  # noqa: PLC0415 - only for arrays

    refuse_mask(value)
    return np.asarray(value)


def refuse_mask(value: Any) -> None:
    """Raise if a value is an array with masked elements, which would be written as if they were valid.

    Raises
    ------
    CannotHoldError
        It is.
    """
    import numpy as np  # noqa: PLC0415 - only for arrays

    if np.ma.is_masked(value):
        raise CannotHoldError("its mask would be lost: fill it first, as with array.filled(nan)")


def _arrays(value: Any, above: str = "") -> Iterator[tuple[str, "NDArray[Any]"]]:
    """Yield the arrays of nested mappings, with their paths."""
    if not isinstance(value, Mapping):
        raise CannotHoldError("it is not a mapping of names to arrays")
    for name, member in value.items():
        if isinstance(member, Mapping):
            yield from _arrays(member, f"{above}{name}/")
        else:
            yield f"{above}{name}", _array(member)


def _read_fits(fits: Any, path: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a file that was cut: it is an error below
        units = fits.open(path, memmap=False, lazy_load_hdus=False)
    with units:
        for place, unit in enumerate(units):
            where = units.fileinfo(place)
            if where["datLoc"] + where["datSpan"] > Path(path).stat().st_size:
                raise CannotHoldError(f"it ends in the data of unit {place}")
            _ = unit.data  # read before the file is closed
        return units


def _write_fits(fits: Any, value: Any, path: str) -> None:
    if type(value).__module__.startswith("astropy.table"):
        value = fits.table_to_hdu(value)
    (value if hasattr(value, "writeto") else fits.PrimaryHDU(_array(value))).writeto(path)


def _write_hdf5(h5py: Any, value: Any, path: str) -> None:
    with h5py.File(path, "x") as file:
        for name, array in _arrays(value):
            file[name] = array


def _write_zarr(zarr: Any, value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        zarr.save_array(path, _array(value))
        return
    group = zarr.open_group(path, mode="w-")
    for name, array in _arrays(value):
        group.create_array(name, data=array)


def _read_parquet(pandas: Any, path: str) -> Any:
    """Return a table. Columns with missing integers or truth values keep their types."""
    arrow, dataset = (optional_package(name, "the format 'parquet' needs", "formats") for name in _ARROW)
    # pandas would take the types of the first file, where a column without values has none.
    parquet = dataset.dataset(path, format="parquet", partitioning="hive")
    schemas = [parquet.schema, *(part.physical_schema for part in parquet.get_fragments())]
    schema = arrow.unify_schemas(schemas, promote_options="permissive")
    table = dataset.dataset(path, schema, format="parquet", partitioning="hive").to_table()
    frame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = str(column.type).replace("uint", "UInt").replace("int", "Int").replace("bool", "boolean")
        if column.null_count and kind in _MISSING and name in frame:
            dtype = pandas.api.types.pandas_dtype(kind)
            frame[name] = column.to_pandas(types_mapper=lambda _, dtype=dtype: dtype).array
    return frame


def _read_image(image: Any, path: str) -> Any:
    with image.open(path) as picture:
        picture.load()
        return picture


def _write_image(image: Any, value: Any, path: str) -> None:
    picture = value if isinstance(value, image.Image) else image.fromarray(_array(value))
    picture.save(path, format=image.registered_extensions().get(Path(path).suffix.lower(), "PNG"))


def _write_ms(library: Any, value: Any, path: str) -> None:  # noqa: ARG001 - one signature
    raise CannotHoldError("only a path names a measurement set")


FORMATS: Mapping[str, _Format] = {
    "fits": _Format(("a FITS file",), ("astropy.io.fits",), _read_fits, _write_fits),
    "hdf5": _Format(("an HDF5 file",), ("h5py",), lambda h5py, path: h5py.File(path, "r"), _write_hdf5),
    "zarr": _Format(("a zarr directory",), ("zarr",), lambda zarr, path: zarr.open(path, mode="r"), _write_zarr),
    "xarray": _Format(
        ("an HDF5 file", "a NetCDF 3 file"),
        ("xarray",),
        lambda xarray, path: xarray.load_dataset(path),
        lambda _, value, path: value.to_netcdf(path),
    ),
    "parquet": _Format(
        ("a Parquet file", "a directory of Parquet files"),
        ("pandas", "pyarrow"),
        _read_parquet,
        lambda pandas, value, path: pandas.DataFrame(value).to_parquet(path, engine="pyarrow"),
    ),
    "csv": _Format(
        ("text",),
        ("pandas",),
        lambda pandas, path: pandas.read_csv(path),
        lambda pandas, value, path: pandas.DataFrame(value).to_csv(path, index=False),
    ),
    "image": _Format(("a picture",), ("PIL.Image",), _read_image, _write_image),
    "ms": _Format(("a measurement set",), ("os",), lambda _, path: path, _write_ms),
}
"""The formats by name."""
