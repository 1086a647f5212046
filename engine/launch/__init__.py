"""Executions and deployments as launch configurations of training frameworks and serving engines, and back.

`write` turns an execution of a model into everything a framework needs to run it, with two lists: fields that the
framework cannot express, and settings without a field here. `read` and `read_flags` go the other way, and list flags
that they could not read. Each framework is a package of its own behind `engine.launch.contract.Framework`; the registry
names them. Facts about the frameworks, their flags, defaults and silent corrections, have their versions beside them.

    >>> written = engine.launch.write(execution, "llama-3-70B", framework="megatron")     # doctest: +SKIP
    >>> engine.launch.read_flags("megatron", written.flags, gpus=64).execution            # doctest: +SKIP
"""

from engine.launch.contract import (
    Framework,
    LaunchError,
    LaunchFile,
    LaunchReading,
    OnlyModelError,
    OpenFieldsError,
    Origin,
    UnknownValue,
    Written,
)
from engine.launch.conversion import complete, evaluable, network_of, read, read_flags, read_text, settle, write
from engine.launch.flag_changes import FlagChange, flag_changes
from engine.launch.framework_choice import (
    FrameworkCost,
    find_framework_cost,
    find_model_refusal,
    list_obstacles,
    with_framework,
)
from engine.launch.improvement_steps import ImprovementStep, StandingChange, find_steps, starts_with
from engine.launch.origin_rows import assumed_sentence, origin_rows
from engine.launch.registry import FRAMEWORKS, framework_of
from engine.launch.report import LIST_TITLES
from engine.launch.serving_engines.contract import EngineReading, WrittenDeployment
from engine.launch.serving_engines.reading import read_engine
from engine.launch.serving_engines.registry import ENGINES
from engine.launch.serving_engines.texts import is_serving_text, read_engine_text
from engine.launch.serving_engines.writing import TARGETS, is_serving_target, write_deployment
from engine.launch.shapes import model_of_shape, named_shape, shape_of
from engine.launch.stage_options import megatron_options, stage_options
from engine.launch.standing import Standing, StandingTarget, evaluate_execution, find_number, standing

__all__ = [
    "ENGINES",
    "FRAMEWORKS",
    "LIST_TITLES",
    "TARGETS",
    "EngineReading",
    "FlagChange",
    "Framework",
    "FrameworkCost",
    "ImprovementStep",
    "LaunchError",
    "LaunchFile",
    "LaunchReading",
    "OnlyModelError",
    "OpenFieldsError",
    "Origin",
    "Standing",
    "StandingChange",
    "StandingTarget",
    "UnknownValue",
    "Written",
    "WrittenDeployment",
    "assumed_sentence",
    "complete",
    "evaluable",
    "evaluate_execution",
    "find_framework_cost",
    "find_model_refusal",
    "find_number",
    "find_steps",
    "flag_changes",
    "framework_of",
    "is_serving_target",
    "is_serving_text",
    "list_obstacles",
    "megatron_options",
    "model_of_shape",
    "named_shape",
    "network_of",
    "origin_rows",
    "read",
    "read_engine",
    "read_engine_text",
    "read_flags",
    "read_text",
    "settle",
    "shape_of",
    "stage_options",
    "standing",
    "starts_with",
    "with_framework",
    "write",
    "write_deployment",
]
