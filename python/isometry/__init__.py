"""Moves data between any two memories of a machine, in any layout, on a path that it chooses."""

from ._native import VERSION as __version__

__all__ = ["__version__"]
