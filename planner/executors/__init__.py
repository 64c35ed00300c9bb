"""Where candidates are simulated: here, in processes of this machine, or by Ray. The results are the same."""

from planner.executors._base import Executor
from planner.executors.choose import cpu_count, make_executor

__all__ = ["Executor", "cpu_count", "make_executor"]
