"""Fitting coefficient sets: kernels from micro-benchmarks, engine overheads from serving runs."""
