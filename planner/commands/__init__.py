"""The commands of `planner`, one a file: `add_arguments(parser)`, and `run(args)`, which returns the exit code."""
