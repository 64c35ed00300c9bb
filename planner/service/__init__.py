"""`planner serve`: searches over HTTP, watched live, kept over restarts, and the web page in front of them."""
