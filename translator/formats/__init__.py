"""Files of logical graphs: their family, and reading them into a `translator.logical.LogicalGraph`.

Only this package uses the camelCase of files.

===============  ======================================================================================================
`load`           Reading of logical graphs of all families
`json_document`  Graph files as JSON documents: reading within limits on size and depth, their family, and access to
                 their values
`vocabulary`     Names in files of all versions: categories, parameters and kinds of fields, with their canonical names
`nodes`          Fields of nodes, from files of all versions: lists of fields, of arguments and of ports
`ojs`            Reading of the OJS family and older files: lists of nodes and links, with three kinds of identity
`dump`           Writing of logical graphs: the model as a document of the family OJS-id or V4, which EAGLE and this
                 package read
`wfformat`       Workflows of WfCommons (WfFormat 1.5) as physical graphs: tasks become applications, files become data
                 drops
===============  ======================================================================================================
"""

from translator.formats.json_document import Family, read_file
from translator.formats.load import Reading, read_logical

__all__ = ["Family", "Reading", "read_file", "read_logical"]
