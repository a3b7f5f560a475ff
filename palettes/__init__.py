"""Palettes of components in EAGLE's format, derived from the components' own definitions.

=============  ========================================================================================================
`build`        Makes the palettes and the reference page of components from the definitions of the components
`radio`        The entries of radio.palette: programs and libraries of radio astronomy
`doxygen`      Nodes from comments in the source code of users, as DALiuGE's users write them
`new_package`  A new package with one component, for ``dropflow palette init``
`eagle`        EAGLE's palettes as typed records: the file, its nodes and their fields, in the OJS schema
=============  ========================================================================================================
"""
