"""The built-in applications.

================  =====================================================================================================
`scatter_gather`  Applications that scatter, gather and group arrays and lists, and make arrays to try them
`branch`          The branch: a function chooses the output
`io`              Applications that copy, download, listen, and compute checksums
`testing`         Applications for first graphs and for tests: greet, do nothing, sleep, compute
`copy`            Copies of contents, byte for byte
================  =====================================================================================================
"""
