"""What no simulation of a candidate can beat, from the physics alone: latencies from below, rates from above."""

from planner.bounds.candidate import Bounds

__all__ = ["Bounds"]
