"""Flow control: usage-limit policies, orderings and fairness, one file each; `FLOW_CONTROL` names the policies."""

from sim.cluster.flow_control._base import FlowControlPolicy
from sim.cluster.flow_control.none import NoFlowControl
from sim.cluster.flow_control.priority_holdback import PriorityHoldback
from sim.cluster.flow_control.soft_reflective import SoftReflective
from sim.cluster.flow_control.static import StaticLimit

FLOW_CONTROL: dict[str, type[FlowControlPolicy]] = {
    "none": NoFlowControl,
    "static": StaticLimit,
    "priority-holdback": PriorityHoldback,
    "soft-reflective": SoftReflective,
}

__all__ = ["FLOW_CONTROL", "FlowControlPolicy"]
