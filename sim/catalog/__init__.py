"""The catalog: models as their config.json describes them, GPUs as their datasheets do."""

from sim.catalog.gpu import GPUSpec, gpu_names, load_gpu
from sim.catalog.load import load_model, model_names
from sim.catalog.model import Gemm, ModelSpec, check_tensor_parallel
from sim.catalog.weights import WeightFormat

__all__ = [
    "GPUSpec",
    "Gemm",
    "ModelSpec",
    "WeightFormat",
    "check_tensor_parallel",
    "gpu_names",
    "load_gpu",
    "load_model",
    "model_names",
]
