"""Palettes of components in EAGLE's format, derived from the components' own definitions.

=======  ==============================================================================================================
`build`  Makes the palettes and the reference page of components from the definitions of the components
`eagle`  EAGLE's files as typed records: the node, field and link of a graph or palette in the OJS schema
=======  ==============================================================================================================
"""
