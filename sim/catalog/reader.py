"""Typed access to the keys of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import InputError

Config = Mapping[str, Any]


class Reader:
    """Typed access to a config's keys; what is wrong is an `InputError` that names the key."""

    def __init__(self, config: Config, field: str) -> None:
        self.config = config
        self.field = field

    def error(self, problem: str) -> InputError:
        """The error to raise for `problem`."""
        return InputError(self.field, problem)

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1, maximum: int = 10**9) -> int:
        """The first of `keys` that is there and not null, from `minimum` to `maximum`; else `default`, unchecked."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.error(f"{key} must be an integer, got {value!r}")
            if value < minimum:
                raise self.error(f"{key} must be at least {minimum}, got {value}")
            if value > maximum:
                raise self.error(f"{key} must be at most {maximum}, got {value}")
            return value
        if default is None:
            raise self.error(f"missing key {' or '.join(keys)}")
        return default

    def integers(self, key: str) -> list[int]:
        """The list of integers at `key`; empty if it is missing or null."""
        value = self.config.get(key) or []
        if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
            raise self.error(f"{key} must be a list of integers, got {value!r}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """The boolean at `key`; `default` if it is missing or null."""
        value = self.config.get(key, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(f"{key} must be true or false, got {value!r}")
        return value

    def mapping(self, key: str) -> Config:
        """The object at `key`; empty if it is missing or null."""
        value = self.config.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(f"{key} must be an object, got {value!r}")
        return value
