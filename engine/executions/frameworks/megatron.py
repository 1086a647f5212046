"""Executions that Megatron-LM and Megatron-Bridge do not run.

Sources: `engine.launch.megatron.constraints`, whose checks are Megatron-LM's, and `engine.launch.megatron.writing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from engine.columns import by_name, choice_label
from engine.columns.recompute_modules import modules_of_word
from engine.columns.stage_layouts import layout_of_word
from engine.executions.arrays import Flags, Ints
from engine.executions.codes import ATTENTION_ONLY, FULL, NO_OVERLAP, NONE, P2P_RS_AG, RS_AG
from engine.executions.frameworks.contract import (
    COMBINED,
    PLAIN_SCHEDULES,
    FrameworkRules,
    LaunchSubject,
    PointFlags,
    is_word,
    microbatches_of,
)
from models import datatypes

__all__ = ["MEGATRON", "MEGATRON_BRIDGE"]

_ELSEWHERE: Final = {
    "expert_imbalance": "the router",
    "tensor_par_net": "the order of ranks",
    "pipeline_par_net": "the order of ranks",
    "data_par_net": "the order of ranks",
    "attention_type": "the model",
}


def _refuse_points(points: Mapping[str, Ints], subject: LaunchSubject, *, program: str) -> dict[str, Flags]:
    tensor, pipeline, chunks = points["tensor_par"], points["pipeline_par"], points["pipeline_interleaving"]
    schedule, passes, expert = points["schedule"], microbatches_of(points), points["expert_par"]
    everywhere = np.ones(len(tensor), bool)
    heads, groups = subject.heads
    several = (chunks > 1) & (pipeline > 1)
    has_word = datatypes.word_for(program, subject.datatype) is not None
    found = {
        f"the datatype {choice_label('datatype', subject.datatype)}": everywhere & (not has_word),
        "a schedule other than 1F1B, interleaved or combined 1F1B": ~np.isin(schedule, (*PLAIN_SCHEDULES, COMBINED))
        & (pipeline > 1),
        "interleaving with fewer microbatches than stages": several & (passes < pipeline),
        "combined 1F1B without chunks": (schedule == COMBINED) & (chunks == 1) & (pipeline > 1),
        "combined 1F1B without expert parallelism": (schedule == COMBINED) & (expert == 1),
        "combined 1F1B with unlike groups of microbatches": (schedule == COMBINED) & several & (passes % pipeline > 0),
        "prediction layers before the last stage": _has_early_predictions(points, subject) & (pipeline > 1),
    }
    if not subject.has_pattern:
        a = subject.model.architecture_or_assumed()
        found["heads that tensor ranks do not divide"] = (heads % tensor != 0) | (
            (groups % tensor != 0) & (tensor % groups != 0)
        )
        found["experts with biases split over tensor ranks"] = (
            bool(a.linear_bias and subject.experts) & (points["expert_tensor_par"] > 1) & everywhere
        )
        return found
    found["models with unlike layers"] = everywhere & (program == "megatron_bridge")
    found["combined 1F1B of unlike layers"] = schedule == COMBINED
    return found | _refuse_layers(points, subject)


def _refuse_layers(points: Mapping[str, Ints], subject: LaunchSubject) -> dict[str, Flags]:
    """Return which degrees do not divide linear attention and state space layers of a pattern [points]."""
    tensor, context = points["tensor_par"], points["context_par"]
    arguments = subject.arguments_of("megatron")
    letters = "".join(words.letter for words in subject.words_of("megatron"))
    wrong = np.zeros(len(tensor), bool)
    both = tensor * context
    if "G" in letters:
        for name in ("linear_num_key_heads", "linear_num_value_heads"):
            wrong |= int(arguments.get(name, 16)) % both != 0
    if "M" in letters:
        groups = int(arguments.get("mamba_num_groups", 8))
        here = np.maximum(groups // tensor, 1)
        wrong |= (groups % tensor != 0) | ((here % context != 0) & (context % here != 0))
        if "mamba_num_heads" in arguments:
            wrong |= int(arguments["mamba_num_heads"]) % both != 0
    return {"layers that tensor and context ranks do not divide": wrong}


def _has_early_predictions(points: Mapping[str, Ints], subject: LaunchSubject) -> Flags:
    """Return where a list of layers has those for multi-token prediction anywhere but in the last stage [points]."""
    words = by_name("stage_layout").words
    layouts = np.unique(points["stage_layout"]).tolist() if subject.trained_predictions else []
    early = [layout for layout in layouts if any(layout_of_word(words[layout]).predictions[:-1])]
    return np.isin(points["stage_layout"], early)


def _refuse_modes(
    mode: Mapping[str, Any], at: PointFlags, subject: LaunchSubject, *, is_bridge: bool
) -> dict[str, Flags]:
    recompute, selected = mode["activation_recompute"], mode["selective_recompute"]
    selective = recompute == ATTENTION_ONLY
    half = selective & is_word(mode, "selective_recompute", "half")
    written, without_arguments, whole = _selections(subject, is_bridge=is_bridge)
    # Every second layer is written as the first half of a chunk's layers, which is full recomputation there.
    as_full = half & at.several_layers & (not subject.has_pattern)
    replaced = selective & ~np.isin(selected, written) & ~as_full
    full = (recompute == FULL) | as_full
    hidden = at.spread & (mode["expert_overlap"] | (at.combined & at.pipeline))
    partial_graphs = is_word(mode, "launch", "partial_graphs")
    layers_go = at.pipeline | (recompute != NONE) | ~mode["activations_offload"] | (subject.layers == 1)
    found = {
        "8-bit parameters without ZeRO": mode["fp8_param_gather"] & (mode["zero_stage"] == 0),
        "16-bit optimizer state without ZeRO": is_word(mode, "optimizer_datatype", "bfloat16")
        & (mode["zero_stage"] == 0),
        "selective recompute of another kind": replaced,
        "recompute of modules that the model lacks": selective & np.isin(selected, without_arguments),
        "partial CUDA graphs with full recompute": partial_graphs & full,
        "numbers of recomputed blocks of unlike layers": (mode["recompute_blocks"] > 0) & subject.has_pattern,
        "offloaded activations of unlike layers": mode["activations_offload"] & subject.has_pattern,
        "hidden exchange of tokens by all-gather": hidden & is_word(mode, "token_dispatcher", "all_gather"),
        "hidden exchange of tokens with full recompute": hidden & full,
        "hidden exchange of tokens with experts recomputed": hidden & selective & np.isin(selected, whole),
        "hidden exchange of tokens in a pipeline without chunks": hidden & at.pipeline & ~at.chunked,
        "hidden exchange of tokens with several prediction layers": hidden & (subject.trained_predictions > 1),
        "hidden exchange of tokens in FP32": hidden & (subject.datatype == "float32"),
        "hidden exchange of tokens of unlike layers": mode["expert_overlap"] & subject.has_pattern,
        "all-reduce in split messages": mode["tensor_par_comm_type"] == P2P_RS_AG,
        "tensor overlap without sequence parallelism": (mode["tensor_par_overlap"] != NO_OVERLAP)
        & at.tensor
        & (mode["tensor_par_comm_type"] != RS_AG),
        "hidden transfers of plain 1F1B": mode["pipeline_overlap"] & at.pipeline,
        "FlashAttention 1": is_word(mode, "attention_kernel", "flash1"),
        "compiled code": is_word(mode, "launch", "compiled"),
        "offloaded weights": mode["weight_offload"] & (layers_go if is_bridge else True),
        "unfused activations": ~mode["fused_activation"],
        "tokens sent in FP8": is_word(mode, "dispatch_datatype", "float8") & (subject.experts > 0),
        "forward passes alone": ~mode["training"],
    }
    return {reason: np.asarray(where, bool) for reason, where in found.items()}


def _selections(subject: LaunchSubject, *, is_bridge: bool) -> tuple[list[int], list[int], list[int]]:
    """Return positions of words of selective recomputation: words that are written, words of modules that the model
    lacks, and words that recompute layers of experts whole."""
    column = by_name("selective_recompute")
    written = [position for position, word in enumerate(column.words) if word in ("attention", "modules")]
    lacking, whole = [], []
    is_latent = subject.is_latent or "multi_latent_attention" in subject.arguments_of("megatron")
    for position in range(len(column.choices), len(column.words)):
        modules = modules_of_word(column.words[position])
        written.append(position)
        lacks = ("moe_act" in modules and not subject.experts) or ("mla_up_proj" in modules and not is_latent)
        if lacks and not is_bridge:
            lacking.append(position)
        if "moe" in modules:
            whole.append(position)
    return written, lacking, whole


MEGATRON: Final = FrameworkRules(
    name="megatron",
    title="Megatron-LM",
    points=partial(_refuse_points, program="megatron"),
    modes=partial(_refuse_modes, is_bridge=False),
    elsewhere=_ELSEWHERE,
)
MEGATRON_BRIDGE: Final = FrameworkRules(
    name="megatron-bridge",
    title="Megatron-Bridge",
    points=partial(_refuse_points, program="megatron_bridge"),
    modes=partial(_refuse_modes, is_bridge=True),
    elsewhere=_ELSEWHERE,
)
