"""litebert beside its rivals on a CPU: `make bench`, or `python -m benchmarks.speed.run`."""
