"""Reading the YAML that users write, strictly, and the `--set path=value` overrides of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from sim.errors import InputError
from sim.names import nearest
from sim.text_files import read_text

MAX_BYTES = 1_000_000
MAX_NODES = 50_000
MAX_DEPTH = 50
MAX_BITS = 1000  # of a whole number: some 300 digits, which a float still holds


_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML where a key may stand once, 1e-3 is a number and a date is text as in YAML 1.2.

    It stops at the first value too many rather than when all are made.
    """

    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise InputError("", f"holds more than {MAX_NODES:,} values")
        return super().compose_node(parent, index)


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise InputError("", f"line {key_node.start_mark.line + 1}: keys must be words, got {key!r}")
        if key in seen:
            raise InputError("", f"line {key_node.start_mark.line + 1}: the key {key!r} stands twice; keep one")
        seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str) -> Any:
    """The value of a YAML document. Raises InputError (without a field) naming the line where it is broken."""
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InputError("", f"{line}not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError("", f"not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError("", f"is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:  # of a value that looks like a date or a number and is not
        if isinstance(error, InputError):
            raise
        raise InputError("", f"not valid YAML: {error}") from None
    _check_size(value)
    return value


def _check_size(value: Any) -> None:
    """Aliases make a small text stand for an endless value; count what a reader would have to walk through."""
    nodes = 0
    stack = [(value, 0, "")]
    while stack:
        item, depth, path = stack.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise InputError("", f"holds more than {MAX_NODES:,} values")
        if depth > MAX_DEPTH:
            raise InputError("", f"is nested more than {MAX_DEPTH} deep")
        if isinstance(item, dict):
            stack.extend((child, depth + 1, f"{path}.{key}" if path else key) for key, child in item.items())
        elif isinstance(item, list):
            stack.extend((child, depth + 1, f"{path}[{index}]") for index, child in enumerate(item))
        elif isinstance(item, int) and item.bit_length() > MAX_BITS:
            raise InputError(path, "is a number of more than 300 digits")
        elif item is not None and not isinstance(item, (str, int, float)):
            raise InputError(path, f"must be text, a number, a list or a mapping, got a {type(item).__name__}")


def load_document(path: Path) -> dict[str, Any]:
    """The mapping in the YAML file at `path`. Raises InputError (without a field) if there is none."""
    return parse_mapping(read_text(path, MAX_BYTES))


def parse_mapping(text: str) -> dict[str, Any]:
    """The mapping that a YAML document is. Raises InputError (without a field) if it is none."""
    document = parse_yaml(text)
    if not isinstance(document, dict):
        raise InputError("", "must be a mapping of fields (`name: ...`), and is " + describe(document))
    return {key: _unshared(value) for key, value in document.items()}


def check_mapping(document: dict[str, Any]) -> dict[str, Any]:
    """A mapping that came otherwise than as YAML, held to the same limits. Raises InputError."""
    _check_size(document)
    return document


def _unshared(value: Any) -> Any:
    """A copy in which what aliases share stands once for each of them, so that one can be changed alone."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def apply_overrides(document: dict[str, Any], overrides: Iterable[str]) -> None:
    """Put every ``path=value`` into `document`; values are YAML, numbers in a path are positions in a list."""
    for override in overrides:
        path, equals, text = override.partition("=")
        path = path.strip()
        if not equals or not all(path.split(".")):
            raise InputError("--set", f"expected path=value, got {override!r}")
        try:
            value = parse_yaml(text)
        except InputError as error:
            raise InputError(f"--set {path}", str(error)) from None
        _put(document, path, value)


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    node: Any = document
    for depth, key in enumerate(parents):
        if isinstance(node, dict):
            if node.get(key) is None:
                node[key] = {}
            node = node[key]
        else:
            node = node[_position(node, key, path)]
        if not isinstance(node, (dict, list)):
            raise InputError(f"--set {path}", f"{'.'.join(parents[: depth + 1])} is {describe(node)}, not a mapping")
    if isinstance(node, dict):
        node[last] = value
    else:
        node[_position(node, last, path)] = value


def _position(node: list[Any], key: str, path: str) -> int:
    if not key.isdecimal() or len(key) > 9 or int(key) >= len(node):
        raise InputError(f"--set {path}", f"{key!r} must be a position in a list of {len(node)}, from 0")
    return int(key)


def describe(value: Any) -> str:
    """What a wrong value is, in the user's words."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"{str(value).lower()} (true or false)"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_keys(document: Mapping[str, Any], known: Iterable[str], field: str = "") -> None:
    """Raise InputError, with the nearest name, on the first key that is not among `known`."""
    known = list(known)
    for key in document:
        if key not in known:
            path = f"{field}.{key}" if field else key
            raise InputError(path, f"unknown key{nearest(key, known)}; allowed: {', '.join(known)}")


def check_number(
    value: Any,
    field: str,
    *,
    whole: bool = False,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
) -> Any:
    """`value` if it is a finite number within the bounds; InputError says what is allowed otherwise."""
    kind = "a whole number" if whole else "a number"
    bounds = []
    if above is not None:
        bounds.append(f"greater than {above:g}")
    if minimum is not None:
        bounds.append(f"at least {minimum:g}")
    if maximum is not None:
        bounds.append(f"at most {maximum:g}")
    allowed = " ".join([kind, " and ".join(bounds)]).strip()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or (whole and value != int(value)):
        raise InputError(field, f"must be {allowed}, got {describe(value)}")
    if (
        (minimum is not None and value < minimum)
        or (above is not None and value <= above)
        or (maximum is not None and value > maximum)
    ):
        raise InputError(field, f"must be {allowed}, got {value:g}")
    return int(value) if whole else value  # 1e4 is a whole number, though YAML reads a fraction
