"""The translator: logical graph (JSON) -> physical graph -> partitions -> placement.

Everything is a function from value to value. May import `dropflow.graph` and what is below it, and what is known of
components and their fields. Nothing of a graph is executed. `formats` reads files, `unroll` makes drops, `plan` assigns
them to nodes, `web` is the service.

====================  ==================================================================================================
`pipeline`            Translation of a file into a physical graph, with all its problems
`same_files`          Files and directories that several drops would write
`component_findings`  What ``dropflow run`` would refuse here, as findings about a graph
`drawn_positions`     Where EAGLE drew the nodes of a logical graph
`formats`             Logical and physical graphs of others: EAGLE, DALiuGE and WfFormat
`unroll`              Unrolling by index arithmetic
`plan`                Partitions, placements and timelines of physical graphs
`web`                 The translator as a web service
`options`             Options of each stage of a translation, one frozen struct for each; CLI options and REST fields
                      derive from them
`repository`          Graphs in repositories of git, read by the user's git
`logical`             The logical graph: one immutable model for all families of files
`parameters`          Fills in the values of parameters: configurations, global variables and settings of the user
`template`            Templates: logical graphs with parameters
`fill_document`       Filling of templates: the file of a logical graph, with values in place of its parameters
`expressions`         Arithmetic over parameters in values such as ``{n} * 2``, and in estimates of times and volumes
`validate`            Checks of a logical graph without index spaces: references, containers, ports and names
`problem_codes`       The codes of all findings about a graph, and their meanings
`graph_sizes`         Sizes of a logical graph before it is unrolled: counts, volumes, the critical path, and how much
                      runs at a time
`differences`         The differences of two logical graphs in meaning: what was added, removed or changed, however the
                      files look
====================  ==================================================================================================
"""
