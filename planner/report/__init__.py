"""What a run says: which plan to take, what limits each, as text and as figures."""
