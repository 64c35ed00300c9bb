"""Tests: facts about serving, and the oracle they are checked with."""
