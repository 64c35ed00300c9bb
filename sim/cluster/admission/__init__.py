"""Admission policies, one file each; `ADMISSION` names them."""

from sim.cluster.admission.always_admit import AlwaysAdmit
from sim.cluster.admission.latency_slo import LatencySLO
from sim.cluster.admission.probabilistic import Probabilistic
from sim.cluster.admission.reject_negative import RejectNegative
from sim.cluster.admission.tier_shed import TierShed
from sim.cluster.admission.token_bucket import TokenBucket
from sim.cluster.policies import AdmissionPolicy

ADMISSION: dict[str, type[AdmissionPolicy]] = {
    "always-admit": AlwaysAdmit,
    "token-bucket": TokenBucket,
    "tier-shed": TierShed,
    "reject-negative": RejectNegative,
    "probabilistic": Probabilistic,
    "latency-slo": LatencySLO,
}
