"""Executions that DeepSpeed's configuration does not run. Source: `engine.launch.deepspeed.writing`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.columns import choice_label
from engine.executions.arrays import Flags, Ints
from engine.executions.codes import ALL_REDUCE, FULL
from engine.executions.frameworks.contract import FrameworkRules, LaunchSubject, PointFlags, is_word
from models import datatypes

__all__ = ["DEEPSPEED"]


def _refuse_points(points: Mapping[str, Ints], subject: LaunchSubject) -> dict[str, Flags]:
    tensor, context, expert = points["tensor_par"], points["context_par"], points["expert_par"]
    ranks = points["tensor_par"] * points["pipeline_par"] * points["data_par"] * context
    pattern = subject.model.layers
    scans = pattern is not None and any(layer.is_scan for block in pattern.blocks for layer in block.mixers)
    has_word = datatypes.word_for("deepspeed", subject.datatype) is not None
    return {
        f"the datatype {choice_label('datatype', subject.datatype)}": np.ones(len(tensor), bool) & (not has_word),
        "a pipeline": points["pipeline_par"] > 1,
        "tensor with context or expert parallelism": (tensor > 1) & ((context > 1) | (expert > 1)),
        "heads that tensor and context ranks do not divide": subject.heads[0] % (context * tensor) != 0,
        "scans split over ranks": (tensor * context > 1) & scans,
        "expert ranks that do not divide experts and GPUs": (expert > 1)
        & ((max(subject.experts, 1) % expert != 0) | (ranks % expert != 0)),
        "experts split over tensor ranks": points["expert_tensor_par"] > 1,
    }


def _refuse_modes(mode: Mapping[str, Any], at: PointFlags, subject: LaunchSubject) -> dict[str, Flags]:
    stage = mode["zero_stage"]
    wide = subject.datatype != "bfloat16"
    found = {
        "expert and context parallelism at ZeRO stage 3": at.spread & at.context & (stage == 3),
        "sequence parallelism of tensor ranks": at.tensor & (mode["tensor_par_comm_type"] != ALL_REDUCE),
        "offloaded activations without full recompute": mode["activations_offload"]
        & (mode["activation_recompute"] != FULL),
        "8-bit parameters": mode["fp8_param_gather"],
        "16-bit optimizer state without BF16": ~is_word(mode, "optimizer_datatype", "float32") & wide,
        "exchange of gradients after the backward pass without ZeRO": (stage == 0)
        & ~mode["data_par_overlap"]
        & at.replicas,
        "offloaded optimizer without ZeRO": mode["optimizer_offload"] & (stage == 0),
        "offloaded weights below ZeRO stage 3": mode["weight_offload"] & (stage < 3),
        "numbers of recomputed blocks": mode["recompute_blocks"] > 0,
        "a token dispatcher other than all-to-all": ~is_word(mode, "token_dispatcher", "all_to_all"),
        "tokens sent in FP8": is_word(mode, "dispatch_datatype", "float8"),
        "a context exchange other than of heads": at.context & ~is_word(mode, "context_par_comm", "a2a"),
        "hidden exchange of tokens": mode["expert_overlap"],
        "hidden transfers of plain 1F1B": mode["pipeline_overlap"],
        "forward passes alone": ~mode["training"],
    }
    return {reason: np.asarray(where, bool) for reason, where in found.items()}


_CODE: Final = "the training code"
DEEPSPEED: Final = FrameworkRules(
    name="deepspeed",
    title="DeepSpeed",
    points=_refuse_points,
    modes=_refuse_modes,
    elsewhere={
        "activation_recompute": _CODE,
        "selective_recompute": _CODE,
        "launch": _CODE,
        "attention_kernel": _CODE,
        "fused_activation": _CODE,
        "attention_type": "the model",
        "expert_imbalance": "the router",
        "tensor_par_net": "the order of ranks",
        "pipeline_par_net": "the order of ranks",
        "data_par_net": "the order of ranks",
    },
)
