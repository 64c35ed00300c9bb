"""The product around the simulator: search, results, exports."""
