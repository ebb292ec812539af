"""litebert beside its rivals on a CPU: `make bench-speed`, or `python -m benchmarks.speed.run`."""
