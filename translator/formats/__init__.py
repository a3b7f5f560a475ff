"""Files of logical graphs: their family, and reading them into a `translator.logical.LogicalGraph`.

`read_file` opens a file, `json_document` parses it, `detect` finds its family, `schema` checks its structure, `ojs` or
`v4` read it into `node_records`, and `logical_builder` makes the graph. Only this package uses the camelCase of files.
Read `load` first.
"""

from translator.formats.detect import Family, detect
from translator.formats.load import Reading, read_logical
from translator.formats.read_file import read_file

__all__ = ["Family", "Reading", "detect", "read_file", "read_logical"]
