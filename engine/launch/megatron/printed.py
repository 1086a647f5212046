"""Arguments that a program printed after the framework's own corrections: logs are read by the same rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.megatron.arguments import LM, Arguments
from engine.launch.megatron.model_reading import read_model
from engine.launch.megatron.parser import parse_printed
from engine.launch.megatron.reading import read_execution
from engine.launch.report import Report

__all__ = ["OTHER_NAMES", "read_printed", "said_by"]

OTHER_NAMES: Final[Mapping[str, str]] = {
    "using_world_size": "world_size",
    "encoder_seq_length": "seq_length",
    "num_moe_experts": "num_experts",
    "ub_tp_comm_overlap": "tp_comm_overlap",
    "fp8_format": "fp8",
    "fp4_format": "fp4",
    "activations_checkpoint_granularity": "recompute_granularity",
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "use_custom_fsdp": "use_megatron_fsdp",
}
"""Names that NeMo, the command line or earlier versions give to an argument of Megatron."""


def said_by(arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of printed arguments, by destination; invalid ones are left out.

    Args:
        arguments: values by name, as text.
    """
    lists = {"recompute_modules", "cp_comm_type", "cuda_graph_modules", "offload_modules"}
    return parse_printed(
        {
            OTHER_NAMES.get(name, name): re.sub(r"[\[\]'\",]", " ", value).strip() if name in lists else value
            for name, value in arguments.items()
        }
    )


def read_printed(arguments: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any], frozenset[str]]:
    """Return the execution and the model that printed arguments describe, and the arguments that were understood.

    Fields have their default if nothing was printed about them; the third value shows which were. Nothing raises: if
    one argument contradicts another, both results are empty.

    Args:
        arguments: values by name, as text.
    """
    said = said_by(arguments)
    report = Report()
    args = Arguments(said, LM, report=report)
    try:
        read_model(args, report)
        read_execution(args, report)
    except LaunchError:
        return {}, {}, frozenset(said)
    return dict(report.execution.values_known), dict(report.model.values_known), frozenset(said)
