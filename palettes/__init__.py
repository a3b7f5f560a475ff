"""Palettes of components in EAGLE's format, derived from the components' own definitions."""
