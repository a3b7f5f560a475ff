"""Times of attempts: records, and what follows from them. Everything here is pure but reading and writing files.

================  =====================================================================================================
`attempts`        The attempts of a session as columns, those of all its nodes together
`timeline`        All that follows from the attempts of a session: lanes, waits, gaps, and the statistics that are
                  shown
`moments`         The states of all drops at any moment of a session, from the times of its attempts and its present
                  states
`timeline_files`  Pictures of timelines: a row for each processor or worker and a box for each attempt, as SVG
`executed`        The timeline of a session as it was executed, as a trace and as a picture
`measured_run`    The records in the directory of a run: its graph, and the times and the usage of its attempts
`octets`          Records of attempts as octets, as managers and pages exchange them: sections, one after another
`statistics`      The records of statistics of attempts, which managers send and commands and pages show
`traffic`         Bytes that were moved between nodes, and those that the plan moves
================  =====================================================================================================
"""
