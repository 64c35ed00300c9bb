"""One replica: its scheduler, its KV blocks, and the clock that steps them (docs/engine.md)."""
