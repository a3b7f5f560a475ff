"""The translator as a web service: the form of EAGLE, an upload, and pages with the result.

Requests without a credential may translate graphs, hence three rules. Graphs are read, unrolled and partitioned in
processes of their own (`worker`), which are killed when they exceed a limit of time or memory. Results are stored on
disk under random ids (`store`), and the oldest are deleted. Only configured managers are called, and only for requests
with the token (`deployer`). Read `service` first, then `routes`.
"""
