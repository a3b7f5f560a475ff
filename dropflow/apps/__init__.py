"""Applications, and the context of one attempt. May import `dropflow.data` and what is below it; never runners.

=====================  =================================================================================================
`app_interface`        The interface for authors of applications: `App`, and the `Context` of one attempt with its
                       inputs and outputs
`registry`             The application of each class name in a graph
`attempt`              The context of one attempt: its inputs, outputs and services while it runs, and its contents
                       afterwards
`attempt_input`        One input of an attempt
`parameters`           Parameters that all applications share: their fields in palettes, types, defaults and
                       descriptions
`functions`            Python functions as applications: from a graph's text or a module, here or in another process
`encodings`            Encodings: how values that applications handle become the bytes behind a port, and back
`formats`              Types of parameters of functions that name the format of a file, such as a FITS image or a
                       measurement set
`missing_data`         How much of its data an attempt lacks: for its code, and in files that it writes
`failed_inputs`        The inputs of an attempt that has failed, in a few lines
`builtin`              The applications that come with dropflow
`shell`                Shell commands as applications
`shell_quote`          Quoting of values in shell commands, so that no value is executed
`command`              A shell command that can be stopped with all its children
`service`              Services: commands that run alongside other applications, from the drop that starts them to the
                       drop that stops them
`runtime_environment`  Variables, secrets, modules and virtual environments of functions and commands
`container`            Commands in containers
`container_engine`     The container engine of this host, and the images of a session
`dynlib`               Functions of shared libraries, through the C interface in ``dynlib.h``
`mpi`                  MPI programs: each rank of a job is a drop, and they run one command together
`ranks`                The ranks of MPI jobs that have arrived in this process, and messages of other nodes about them
`needs`                Needs of components, whether this host has them, and the check of all components of a graph
`check`                Lookup of the functions and classes that a graph names, without importing or running anything
`template_cache`       Facts about templates that all their attempts share, computed once per process
=====================  =================================================================================================
"""
