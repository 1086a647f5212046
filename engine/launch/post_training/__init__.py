"""Runs of reinforcement learning as launch files of NeMo-RL, verl and slime, and back.

`write_run` turns a planned run into the files that start it, `read_run_text` a file into a run: settings by the paths
of a question about post-training, the layout of training, and the replicas of the rollout, each with its origin. What
a framework cannot express, and what a file says beyond that, is listed.
"""

from engine.launch.post_training.contract import LAYOUT_FIELDS, RUN_SETTINGS, RunFramework, RunReading
from engine.launch.post_training.conversion import is_run_text, read_run_text, run_limits, write_run
from engine.launch.post_training.registry import RUN_FRAMEWORKS, is_run_target, run_framework_of

__all__ = [
    "LAYOUT_FIELDS",
    "RUN_FRAMEWORKS",
    "RUN_SETTINGS",
    "RunFramework",
    "RunReading",
    "is_run_target",
    "is_run_text",
    "read_run_text",
    "run_framework_of",
    "run_limits",
    "write_run",
]
