"""Reading the small text files that users write, whatever their path turns out to be."""

from __future__ import annotations

from pathlib import Path

from sim.errors import InputError

MAX_BYTES = 4_000_000


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The text at `path`: UTF-8, a byte order mark left out. Never reads more than `max_bytes`, of a device either.

    Raises InputError (without a field) saying why there is no such text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise InputError("", "no such file") from None
    except IsADirectoryError:
        raise InputError("", "is a directory, not a file") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file system would take
        raise InputError("", f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > max_bytes:
        raise InputError("", f"is too large: at most {max_bytes:,} bytes are read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("", "is not UTF-8 text") from None


def is_there(path: Path) -> bool:
    """Whether there is something at `path`; False also for a path that no file system would take."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def expanded(name: str) -> Path:
    """The path that `name` writes, `~` and `~user` replaced where there is such a user."""
    path = Path(name)
    try:
        return path.expanduser()
    except RuntimeError:
        return path
