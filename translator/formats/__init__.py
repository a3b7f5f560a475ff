"""Files of logical graphs: which family a file belongs to, and how it becomes a `translator.logical.LogicalGraph`.

The way of a file: `files` opens it, `document` parses it, `detect` tells the family, `schema` checks its structure,
`ojs` or `v4` read it into `records`, `assembly` makes the graph. Foreign camelCase ends here. Read `load` first.
"""

from translator.formats.detect import Family, detect
from translator.formats.load import Reading, read_logical
from translator.formats.read_file import read_file

__all__ = ["Family", "Reading", "detect", "read_file", "read_logical"]
