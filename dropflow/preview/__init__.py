"""Previews of contents: pictures, arrays, tables and text. Only a bounded part of a content is read.

FITS files, zarr and pictures are read by astropy, zarr and Pillow (the extra ``views``), imported when a content needs
them. Contents are never executed, imported or unpickled, and whatever they hold, the only error is
`dropflow.errors.BadFileError`.

======================  ==============================================================================================
`look`                  Finds the format of a content, and returns its preview or its picture
`source`                Contents whose parts can be read one by one: bytes, a file, or the files of a directory
`arrays`                Arrays in numpy's ``.npy`` files and in zarr directories
`fits`                  FITS files: the headers of all units, images and tables
`parquet`               Parquet files: the schema and rows (pyarrow, of the extra ``formats``)
`measurement_set`       Measurement sets, what was observed, and other tables of casacore (the extra ``radio``)
`image`                 Samples of arrays, drawn as a PNG picture of 256 colours
`tables`                The first rows of a table, or those that meet a condition, in the order of a column
`text`                  Text, tables in text (CSV and JSON), and bytes in hexadecimal
`worker`                The process that reads contents: ``python -m dropflow.preview.worker DESCRIPTOR MEMORY SECONDS``
`difference`            How two contents differ: ``python -m dropflow.preview.difference LEFT RIGHT``
======================  ==============================================================================================
"""
