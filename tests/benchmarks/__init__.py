"""How fast the engine is: `python -m tests.benchmarks` measures and prints a table. Nothing in here is a test."""
