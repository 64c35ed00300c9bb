"""A deterministic discrete-event simulator of vLLM-like engines behind an llm-d-like router."""

from sim._interpreted import prefer_source, source_is_wanted

if source_is_wanted():
    prefer_source()
