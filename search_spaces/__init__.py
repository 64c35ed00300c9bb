"""Spaces that users start from; a package, so that an installed planner finds them too."""
