"""Executions that torchtitan does not run. Source: `engine.launch.torchtitan.writing` and its sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.columns import by_name
from engine.executions.arrays import Flags, Ints
from engine.executions.codes import ALL_REDUCE, ATTENTION_ONLY, P2P_RS_AG
from engine.executions.frameworks.contract import (
    PLAIN_SCHEDULES,
    FrameworkRules,
    LaunchSubject,
    PointFlags,
    is_word,
    microbatches_of,
    stage_sizes,
)

__all__ = ["TORCHTITAN"]

_V_SHAPED: Final = [by_name("schedule").choices.index(word) for word in ("zb_v", "dualpipev")]
_DUAL: Final = by_name("schedule").choices.index("dualpipev")


def _refuse_points(points: Mapping[str, Ints], subject: LaunchSubject) -> dict[str, Flags]:
    tensor, pipeline, chunks = points["tensor_par"], points["pipeline_par"], points["pipeline_interleaving"]
    expert, split, context = points["expert_par"], points["expert_tensor_par"], points["context_par"]
    schedule, passes = points["schedule"], microbatches_of(points)
    plain, pipelined = ~np.isin(schedule, _V_SHAPED), pipeline > 1
    rounds = np.maximum(passes // pipeline, 1)
    heads, groups = subject.heads
    least = np.where(schedule == _DUAL, 2 * pipeline, np.where(plain & (chunks == 1), pipeline, 1))
    return {
        "heads that tensor ranks do not divide": (heads % tensor != 0) | (groups % tensor != 0),
        "expert ranks beyond the shards": points["data_par"] * context * tensor % expert != 0,
        "experts split over tensor ranks": (expert > 1) & (split != 1),
        "whole experts on tensor ranks": (expert == 1) & (split != tensor) & (subject.experts > 0),
        "context parallelism of unlike layers": (context > 1) & subject.has_pattern,
        "a schedule other than 1F1B, interleaved, ZBV or DualPipeV": pipelined
        & ~np.isin(schedule, (*PLAIN_SCHEDULES, *_V_SHAPED)),
        "a pipeline with tied embeddings": pipelined & subject.has_tied_embeddings,
        "a pipeline with few microbatches": pipelined & (passes < least),
        "interleaving in unequal rounds": pipelined & plain & (chunks > 1) & (passes % rounds != 0),
        "stages without a layer": pipelined & (stage_sizes(points, subject)[2] == 0),
    }


def _refuse_modes(mode: Mapping[str, Any], at: PointFlags, subject: LaunchSubject) -> dict[str, Flags]:
    stage, comm = mode["zero_stage"], mode["tensor_par_comm_type"]
    found = {
        "sequence parallelism of undivided tokens": (comm != ALL_REDUCE) & at.tokens_undivided,
        "expert ranks beyond the shards without ZeRO": (stage == 0) & at.beyond_shard,
        "context parallelism without ZeRO": (stage == 0) & at.context,
        "ZeRO stage 1 without a pipeline": (stage == 1) & ~at.pipeline,
        "ZeRO stage 2 in a pipeline": (stage == 2) & at.pipeline,
        "ZeRO with a single replica": (stage > 0) & ~at.replicas,
        "offload of weights or optimizer alone": mode["weight_offload"] != mode["optimizer_offload"],
        "numbers of recomputed blocks": mode["recompute_blocks"] > 0,
        "selective recompute of another kind": (mode["activation_recompute"] == ATTENTION_ONLY)
        & ~is_word(mode, "selective_recompute", "operators"),
        "all-reduce in split messages": comm == P2P_RS_AG,
        "a token dispatcher other than all-to-all": ~is_word(mode, "token_dispatcher", "all_to_all"),
        "tokens sent in FP8": is_word(mode, "dispatch_datatype", "float8"),
        "a context exchange other than a ring": ~is_word(mode, "context_par_comm", "p2p"),
        "gradients in 16 bits": ~is_word(mode, "gradient_datatype", "float32"),
        "8-bit parameters": mode["fp8_param_gather"],
        "16-bit optimizer state": ~is_word(mode, "optimizer_datatype", "float32"),
        "exchange of gradients after the backward pass": ~mode["data_par_overlap"] & at.replicas,
        "offloaded activations": mode["activations_offload"],
        "hidden exchange of tokens": mode["expert_overlap"],
        "hidden transfers of plain 1F1B": mode["pipeline_overlap"],
        "forward passes alone": ~mode["training"],
    }
    return {reason: np.asarray(where, bool) for reason, where in found.items()}


TORCHTITAN: Final = FrameworkRules(
    name="torchtitan",
    title="torchtitan",
    points=_refuse_points,
    modes=_refuse_modes,
    elsewhere={
        "launch": "compilation, with torch's own kernels otherwise",
        "attention_kernel": "the flavor of the model",
        "datatype": "the function of the flavor",
        "expert_imbalance": "the router",
        "tensor_par_net": "the order of ranks",
        "pipeline_par_net": "the order of ranks",
        "data_par_net": "the order of ranks",
        "fused_activation": "compilation",
        "attention_type": "the model",
    },
)
