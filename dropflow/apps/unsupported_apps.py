"""Applications of DALiuGE that this version of dropflow does not have: containers, shared libraries and others.

`dropflow.apps.registry` refuses their nodes with an alternative. The data classes that dropflow does not have are in
`dropflow.data.registry`.
"""

from collections.abc import Mapping

__all__ = ["UNSUPPORTED_APPS", "UNSUPPORTED_CATEGORIES"]

_CONTAINERS = "run the program with a BashShellApp node, where it is installed"
_COMPILED = "wrap the library in a Python function (PyFuncApp) or a program (BashShellApp)"
UNSUPPORTED_APPS: Mapping[str, tuple[str, str]] = {
    "DockerApp": ("a Docker container", _CONTAINERS),
    "SingularityApp": ("a Singularity container", _CONTAINERS),
    "DynlibApp": ("a shared library", _COMPILED),
    "DynlibStreamApp": ("a shared library", _COMPILED),
    "DynlibProcApp": ("a shared library", _COMPILED),
    "ScpApp": ("a copy by scp", "run scp in a BashShellApp node"),
    "NgasArchivingApp": ("an NGAS archive", "write a File and archive it with a BashShellApp node"),
    "ExternalStoreApp": ("an external store", "write a File and store it with a BashShellApp node"),
    "SubGraphLocal": ("a subgraph at run time", "draw the subgraph with the SubGraph construct, which is unrolled"),
    "MSPlasmaReader": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSPlasmaWriter": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSStreamingPlasmaConsumer": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "MSStreamingPlasmaProducer": ("a Plasma store", "use SharedMemory nodes, which need no store"),
    "ResultTransmitter": ("DALiuGE's imitation of Dask", "write the result to a File"),
}
"""Applications of DALiuGE that this version does not have: what they are, and an alternative."""

UNSUPPORTED_CATEGORIES: Mapping[str, str] = {
    "docker": "DockerApp",
    "singularity": "SingularityApp",
    "dynlibapp": "DynlibApp",
    "dynlibprocapp": "DynlibProcApp",
    "dynlibobject": "DynlibApp",
    "dynlibmemberfunction": "DynlibApp",
}
"""The same by category, in lower case, of nodes without a class."""
