"""Where candidates are simulated: in this process, or by Ray's workers. The results are the same."""

from planner.executors._base import Executor
from planner.executors.choose import cpu_count, make_executor

__all__ = ["Executor", "cpu_count", "make_executor"]
