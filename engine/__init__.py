"""The engine: every execution of a model on a system, evaluated exactly."""

from engine.evaluate import evaluate
from engine.execution import ExecutionTableError

__all__ = ["ExecutionTableError", "evaluate"]
