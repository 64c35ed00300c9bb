"""Where a user's own policies are found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.policy_path import own_policies, policy_folder

OWN = f"{__name__}:Mine"


@pytest.mark.parametrize(
    "policy",
    [
        {"routing": OWN},
        {"routing": {"name": OWN, "choices": 2}},
        {"routing": {"name": "weighted", "queue": 2, "scorers": {OWN: 1}}},
        {"routing": {"name": "weighted", "picker": {"name": OWN}}},
        {"flow_control": {"name": "static", "detector": OWN}},
    ],
)
def test_a_policy_or_a_part_of_one_is_found_where_its_module_lies(policy: dict[str, Any]) -> None:
    assert own_policies(policy) == [OWN]
    top = __name__.partition(".")[0]
    folder = Path(__file__).parent
    assert policy_folder(policy) == (folder if top == Path(__file__).stem else folder.parent)


def test_shipped_policies_are_nobodys_own() -> None:
    assert own_policies({"routing": {"name": "weighted", "scorers": {"queue-scorer": 2}}, "preemption": "fcfs"}) == []
    assert policy_folder({"routing": "random"}) is None
