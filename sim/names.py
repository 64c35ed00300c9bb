"""What a user means by a name: whatever its case and separators, and the nearest one where there is none such."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def normal_form(name: str) -> str:
    """`name` without case and with every separator written as one hyphen, so that h100_sxm is H100-SXM."""
    return re.sub(r"[\s_\-.]+", "-", name.strip().lower()).strip("-")


def nearest(name: object, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` with the known name nearest to `name`, or nothing if none is near."""
    by_form = {normal_form(candidate): candidate for candidate in known}
    close = difflib.get_close_matches(normal_form(str(name)), list(by_form), n=1, cutoff=0.5)
    return f" (did you mean {by_form[close[0]]!r}?)" if close else ""
