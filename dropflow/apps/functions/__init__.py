"""Python functions as applications: how they are found, called, and run elsewhere.

====================  ==================================================================================================
`function`            Python functions as applications
`load_function`       Python objects that a graph names, or has the code of
`loaded_modules`      Modules of users that a process has loaded, and that were edited since
`function_elsewhere`  Python functions in another process, with its own environment or in a container
====================  ==================================================================================================
"""
