"""JSON as the service writes it: numbers that are none become null, and what is no character is escaped."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

from planner.evaluation_log import finite


def to_text(value: Any) -> str:
    """`value` as compact JSON."""
    return json.dumps(finite(value), separators=(",", ":"), allow_nan=False)


class JsonResponse(JSONResponse):
    """A JSON body."""

    def render(self, content: Any) -> bytes:
        """The body of a response."""
        return to_text(content).encode()
