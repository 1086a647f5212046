"""Executions that MaxText does not run. Source: `engine.launch.maxtext.writing`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.columns import choice_label
from engine.executions.arrays import Flags, Ints
from engine.executions.codes import ALL_REDUCE, ATTENTION_ONLY, NO_OVERLAP, P2P_RS_AG
from engine.executions.frameworks.contract import (
    PLAIN_SCHEDULES,
    FrameworkRules,
    LaunchSubject,
    PointFlags,
    is_word,
    microbatches_of,
    stage_sizes,
)
from models import datatypes

__all__ = ["MAXTEXT"]


def _refuse_points(points: Mapping[str, Ints], subject: LaunchSubject) -> dict[str, Flags]:
    pipeline, data = points["pipeline_par"], points["data_par"]
    pipelined = pipeline > 1
    most, least, _ = stage_sizes(points, subject)
    has_word = datatypes.word_for("maxtext", subject.datatype) is not None
    stages = pipeline * points["pipeline_interleaving"]
    return {
        f"the datatype {choice_label('datatype', subject.datatype)}": np.ones(len(data), bool) & (not has_word),
        "expert ranks that do not divide replicas": data % points["expert_par"] != 0,
        "experts split otherwise than all else": (points["expert_tensor_par"] != points["tensor_par"])
        & (subject.experts > 0),
        "a pipeline of unlike layers": pipelined & (subject.has_pattern or subject.leading_dense_layers > 0),
        "stages of unlike size": pipelined & ((most != least) | (subject.layers % stages != 0)),
        "microbatches in no multiple of the stages": pipelined & (microbatches_of(points) % pipeline != 0),
        "a schedule other than 1F1B or interleaved": pipelined & ~np.isin(points["schedule"], PLAIN_SCHEDULES),
    }


def _refuse_modes(mode: Mapping[str, Any], at: PointFlags, subject: LaunchSubject) -> dict[str, Flags]:
    stage, comm = mode["zero_stage"], mode["tensor_par_comm_type"]
    selective = mode["activation_recompute"] == ATTENTION_ONLY
    dots = selective & is_word(mode, "selective_recompute", "save_dots")
    found = {
        "ZeRO stage 2": stage == 2,
        "ZeRO stage 3 with all replicas on experts": (stage == 3) & at.only_experts,
        "tensor parallelism by all-reduce": at.tensor & (comm == ALL_REDUCE),
        "all-reduce in split messages": at.tensor & (comm == P2P_RS_AG),
        "tensor overlap": at.tensor & (mode["tensor_par_overlap"] != NO_OVERLAP),
        "exchange of gradients after the backward pass": ~mode["data_par_overlap"] & at.replicas,
        "hidden transfers of plain 1F1B": mode["pipeline_overlap"],
        "8-bit parameters": mode["fp8_param_gather"],
        "a context exchange other than ring and all-gather": at.context
        & ~is_word(mode, "context_par_comm", "p2p", "all_gather"),
        "DeepEP and HybridEP": is_word(mode, "token_dispatcher", "deepep", "hybridep"),
        "tokens sent in FP8": is_word(mode, "dispatch_datatype", "float8"),
        "16-bit optimizer state": ~is_word(mode, "optimizer_datatype", "float32"),
        "numbers of recomputed blocks": mode["recompute_blocks"] > 0,
        "selective recompute of another kind": selective
        & ~is_word(mode, "selective_recompute", "save_dots", "save_projections"),
        "offloaded activations without saved products": mode["activations_offload"] & ~dots,
        "forward passes alone": ~mode["training"],
    }
    return {reason: np.asarray(where, bool) for reason, where in found.items()}


MAXTEXT: Final = FrameworkRules(
    name="maxtext",
    title="MaxText",
    points=_refuse_points,
    modes=_refuse_modes,
    elsewhere={
        "launch": "XLA, which compiles always",
        "attention_kernel": "cuDNN",
        "fused_activation": "XLA",
        "attention_type": "the model",
        "expert_imbalance": "the router",
        "tensor_par_net": "the split of degrees over nodes",
        "pipeline_par_net": "the split of degrees over nodes",
        "data_par_net": "the split of degrees over nodes",
    },
)
