"""Where in a YAML text a field stands."""

from __future__ import annotations

import re
from functools import cached_property

import yaml

_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_LINE = re.compile(r"line (\d+):")


class Lines:
    """The lines of a YAML text's fields."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _root(self) -> yaml.Node | None:
        try:
            root: yaml.Node | None = yaml.compose(self._text, Loader=yaml.SafeLoader)
        except (yaml.YAMLError, RecursionError, ValueError):
            return None
        return root

    def of(self, field: str, problem: str = "") -> int | None:
        """The line, from 1, of `field` (``workload.clients[1].share``), or of the nearest part of its path that stands
        there; of a broken document, the line that `problem` names. None: not known."""
        named = _LINE.match(problem)
        if named is not None:
            return int(named.group(1))
        line, node = None, self._root if field else None
        for key, index in _PART.findall(field):
            found = _child(node, key, index)
            if found is None:
                break
            line, node = found
        return line


def _child(node: yaml.Node | None, key: str, index: str) -> tuple[int, yaml.Node] | None:
    """(line, node) of an entry of a mapping or a list; None where it has no such entry."""
    if isinstance(node, yaml.MappingNode) and key:
        for key_node, value in node.value:
            if key_node.value == key:
                return key_node.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
        item = node.value[int(index)]
        return item.start_mark.line + 1, item
    return None
