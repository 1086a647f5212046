"""Training execution of a run as arguments of Megatron-Core, in the keys of the framework around it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from engine.columns import called, choice_label
from engine.launch.contract import LaunchError
from engine.launch.megatron.framework import find_refusal
from engine.launch.megatron.parser import flags_of
from engine.launch.megatron.writing import layout_groups_of
from engine.launch.post_training.contract import RunOrder
from engine.launch.report import Report

__all__ = ["name_unwritten_arguments", "refuse_if_not_started", "written_arguments"]

WITHOUT_KEY: Final = frozenset(
    {
        "micro_batch_size",
        "global_batch_size",
        "transformer_impl",
        "attention_backend",
        "flash_attention_version",
        "moe_grouped_gemm",
        "moe_permute_fusion",
        "moe_router_load_balancing_type",
        "moe_aux_loss_coeff",
        "cuda_graph_impl",
        "optimizer_offload_fraction",
        "use_precision_aware_optimizer",
        "overlap_param_gather",
        # Packs of a step vary, and frameworks even out their number.
        "microbatch_group_size_per_vp_stage",
    }
)
"""Arguments that follow from others there, or that these frameworks choose by themselves."""


def written_arguments(order: RunOrder, report: Report) -> dict[str, Any]:
    """Return the arguments of Megatron-Core for the training execution, by destination.

    Args:
        order: run to write.
        report: where what cannot be said is noted.
    """
    return {name: value for group in layout_groups_of(order.layout, report).values() for name, value in group.items()}


def name_unwritten_arguments(
    arguments: Mapping[str, Any],
    written: Collection[str],
    title: str,
    report: Report,
    defaults: Mapping[str, Any],
) -> None:
    """Note the arguments that differ from what the framework does and for which it has no key.

    Args:
        arguments: all of them, by destination.
        written: destinations that were written.
        title: name of the framework.
        report: takes note.
        defaults: what the framework does, by destination.
    """
    for name, value in arguments.items():
        if name in written or name in WITHOUT_KEY:
            continue
        flag = flags_of().get(name)
        usual = defaults.get(name, None if flag is None else flag.default)
        if value not in (usual, None, False) or (value is False and usual):
            shown = "" if value is True else " off" if value is False else f" {value}"
            spelled = name.replace("_", "-") if flag is None else flag.name
            report.not_expressible(f"{spelled}{shown}: {title} has no key for it.")


def refuse_if_not_started(order: RunOrder, title: str) -> None:
    """Raise `LaunchError` where the framework would not start a run.

    Args:
        order: run to write.
        title: name of the framework.
    """
    settings, e = order.settings, order.layout.execution
    each = order.samples // int(settings["updates"])
    if each % e["data_par"]:
        raise LaunchError(
            f"{title} would not start: {each:,} samples of an update are no multiple of {e['data_par']:,} replicas. "
            f"Choose {called('data_par')} or the updates so that they are."
        )
    gpus = int(order.replicas["tensor_par"]) * int(order.replicas["pipeline_par"])
    if order.gpus_rollout % gpus:
        raise LaunchError(
            f"{title} would not start: {order.gpus_rollout:,} GPUs of the rollout are no multiple of {gpus:,}, a "
            "replica."
        )
    if reason := find_refusal(order.layout):
        raise LaunchError(f"{title} would not start: {reason}.")


def describe_replaced(field: str, value: Any, instead: Any, reason: str) -> str:
    """Return the sentence about a field of an execution that the framework does not run as it is.

    Args:
        field: name of it.
        value: that was planned.
        instead: that is written.
        reason: why, to the full stop.
    """
    return f"{called(field)} {choice_label(field, value)}: {reason}; {choice_label(field, instead)} is written."
