"""The version of the project, and whether the engine runs compiled or interpreted."""

__version__ = "0.1.0"
