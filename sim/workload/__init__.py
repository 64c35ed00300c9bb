"""Requests out of a spec or a trace: arrivals, lengths, shared prefixes, classes."""

from sim.workload._build import build_workload
from sim.workload._spec import (
    SLO_CLASS_PRIORITY,
    WORKLOAD_KINDS,
    Arrival,
    Client,
    ClientsSpec,
    LengthsSpec,
    PrefixSpec,
    SessionsSpec,
    SharedPrefixSpec,
    Stage,
    TraceSpec,
    WorkloadSpec,
    at_rate,
    has_shape,
    parse_workload,
)
from sim.workload._types import PS_PER_MS, PS_PER_S, IntColumn, Pieces, Workload, content_tokens
from sim.workload.presets import PRESETS

__all__ = [
    "PRESETS",
    "PS_PER_MS",
    "PS_PER_S",
    "SLO_CLASS_PRIORITY",
    "WORKLOAD_KINDS",
    "Arrival",
    "Client",
    "ClientsSpec",
    "IntColumn",
    "LengthsSpec",
    "Pieces",
    "PrefixSpec",
    "SessionsSpec",
    "SharedPrefixSpec",
    "Stage",
    "TraceSpec",
    "Workload",
    "WorkloadSpec",
    "at_rate",
    "build_workload",
    "content_tokens",
    "has_shape",
    "parse_workload",
]
