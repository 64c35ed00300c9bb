"""A deterministic discrete-event simulator of vLLM-like engines behind an llm-d-like router."""
