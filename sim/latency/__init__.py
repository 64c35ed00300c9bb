"""How long an engine step takes and what surrounds a request: physics terms and coefficient sets."""

from sim.latency._base import RequestOverhead, StepTime
from sim.latency.coefficient_set import Coefficients, load_coefficients, parse_coefficients
from sim.latency.overhead import build_overhead
from sim.latency.scaled import build_step_time, off_by

__all__ = [
    "Coefficients",
    "RequestOverhead",
    "StepTime",
    "build_overhead",
    "build_step_time",
    "load_coefficients",
    "off_by",
    "parse_coefficients",
]
