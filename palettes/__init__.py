"""Palettes of components in EAGLE's format, derived from the components' own definitions.

=======  ==============================================================================================================
`build`  Makes the palettes and the reference page of components from the definitions of the components
`eagle`  EAGLE's palettes as typed records: the file, its nodes and their fields, in the OJS schema
=======  ==============================================================================================================
"""
