"""Deciders of prefill/decode disaggregation, one file each; `DISAGGREGATION` names them."""

from sim.cluster.disaggregation.always import AlwaysDisaggregate
from sim.cluster.disaggregation.prefix_based import PrefixBased
from sim.cluster.policies import DisaggregationPolicy

DISAGGREGATION: dict[str, type[DisaggregationPolicy]] = {
    "always": AlwaysDisaggregate,
    "prefix-based": PrefixBased,
}
