"""The shapes that everything printed shares: plain tables, wrapped lines, a star that every terminal can show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console


def table() -> Table:
    """A table with a ruled heading and no other lines."""
    return Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True
    )


def line(console: Console, text: str | Text, style: str = "", indent: int = 0) -> None:
    """Print `text` wrapped at words, with a hanging `indent`."""
    text = Text(text, style=style) if isinstance(text, str) else text
    for index, row in enumerate(text.wrap(console, max(20, console.width - indent))):
        row.rstrip()
        console.print(Text(" " * indent if index else "").append_text(row), highlight=False, no_wrap=True)


def star(console: Console) -> str:
    """The mark of the recommended plan, in the terminal's encoding."""
    return "★" if console.encoding.lower().startswith("utf") else "*"
