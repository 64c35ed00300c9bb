"""What holds for every test: nothing is taken from, or left in, the user's store of evaluations."""

from __future__ import annotations

import os

os.environ["PLANNER_STORE"] = "none"
