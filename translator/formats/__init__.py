"""Files of logical graphs: their family, and reading them into a `translator.logical.LogicalGraph`.

Only this package uses the camelCase of files.

===============  ======================================================================================================
`load`           Reading of logical graphs of all families
`json_document`  Reading of graph files, and parsing of JSON documents, with limits on size and depth
`vocabulary`     Names in files of all versions: categories, parameters and kinds of fields, with their canonical names
`nodes`          Fields of nodes, from files of all versions: lists of fields, of arguments and of ports
`ojs`            Reading of the OJS family and older files: lists of nodes and links, with three kinds of identity
`dump`           Writing of logical graphs: the model as a document of the family OJS-id or V4, which EAGLE and this
                 package read
`wfformat`       Workflows of WfCommons (WfFormat 1.5) as physical graphs: tasks become applications, files become data
                 drops
`detect`         The family of a file, from its structure and not from a version string
===============  ======================================================================================================
"""

from translator.formats.detect import Family, detect
from translator.formats.json_document import read_file
from translator.formats.load import Reading, read_logical

__all__ = ["Family", "Reading", "detect", "read_file", "read_logical"]
