"""Measured serving runs out of benchmark files, each with the deployment and workload that it was measured on."""

from planner.measurements._read import read_runs
from planner.measurements._run import METRICS, MeasuredRun, Skipped

__all__ = ["METRICS", "MeasuredRun", "Skipped", "read_runs"]
