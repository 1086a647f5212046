"""Supervised fine-tuning of a model on a data set: all weights, LoRA or QLoRA; GPUs, memory, rate, time and cost.

`FineTuningGoal` is the question, `find_fine_tuning` answers it with a `FineTuningPlan`, whose `methods` have one
`MethodPlan` each. `plan_method` alone returns the plan of one method on a number of GPUs, for curves over GPUs: its
`row` has the fields and statistics of the execution, `tokens_per_s` the rate, `seconds` the time of the whole run.
"""

from engine.fine_tuning.goal import (
    METHODS,
    DataSet,
    FineTuningError,
    FineTuningGoal,
    longest_sequence,
    usual_pack_length,
)
from engine.fine_tuning.search import FineTuningPlan, MethodPlan, find_fine_tuning, plan_method

__all__ = [
    "METHODS",
    "DataSet",
    "FineTuningError",
    "FineTuningGoal",
    "FineTuningPlan",
    "MethodPlan",
    "find_fine_tuning",
    "longest_sequence",
    "plan_method",
    "usual_pack_length",
]
