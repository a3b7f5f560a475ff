"""Previews of contents: pictures, arrays, tables and text. Only a bounded part of a content is read.

Read `look` first: it finds the format of a content, and `records` has what it returns. Each format has its own reader
(`npy`, `fits`, `fits_table`, `fits_tiles`, `zarr_array`, `text`); `source` reads files and directories, `planes`
samples arrays, `image` draws them. Contents are never executed, imported or unpickled, and whatever they hold, the only
error is `dropflow.errors.BadFileError`.
"""
