"""Executions of the calibrated cost model: reading the 23 fields and the extensions, and their rules.

The 23 keep their meaning. Some of them say what this cost model decides otherwise and are taken as given: the three
networks (ranks are placed innermost first: tensor, context, data, pipeline), `fused_activation` and `seq_par_ag_redo`
(kernels are fused, and gathers are repeated rather than kept). `attention_type` has to agree with the model.
An extension that a table does not have, or has no value of in a row, is what `defaults` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.columns import ALL_FIELDS, EXTENSIONS, by_name
from engine.columns.recompute_modules import module_bits, modules_of_word
from engine.columns.stage_layouts import EVEN
from engine.cost_models.calibrated.case_building import NEUTRAL, case_of, model_shapes
from engine.cost_models.calibrated.physics.communication.networks import farthest
from engine.cost_models.calibrated.physics.formats import DATATYPES, FORMATS, LINEAR_BITS, LINEAR_FORMATS
from engine.cost_models.calibrated.physics.inputs import (
    ATTENTION_KERNELS,
    BY_MODULE,
    RECOMPUTES,
    Case,
    Layout,
    ModelShapes,
    Software,
)
from engine.cost_models.calibrated.physics.layers.views import split_sizes
from engine.cost_models.calibrated.physics.pipeline.layouts import pattern_of, problem_of
from engine.cost_models.calibrated.physics.pipeline.schedules import (
    COMBINED,
    INTERLEAVED,
    interleaved_where,
    plain_schedule,
    refusals,
)
from engine.cost_models.calibrated.physics.pipeline.stages import fewest_held
from engine.cost_models.calibrated.systems import fastest_attention
from engine.executions.arrays import Flags, Ints, ReasonNumbers, distinct
from engine.executions.codes import ALL_REDUCE, ATTENTION_ONLY, FULL, NONE, RS_AG
from engine.executions.reasons import FITS
from engine.executions.rules import offloads, tokens_undivided, too_few_to_offload, undivided
from engine.executions.table import Executions, Parsed, check_fields, mark, parse_columns
from hardware import System
from models import Model, datatypes

__all__ = [
    "DATATYPES",
    "DISPATCH_BYTES",
    "IMPLIED",
    "NOT_READ",
    "Fields",
    "case_of_fields",
    "check",
    "defaults",
    "layer_rules",
    "layout_rules",
    "read",
    "schedule_rules",
    "tensor_rules",
    "undivided_sizes",
    "zero_rules",
]

Fields = dict[str, npt.NDArray[Any]]
"""Every field of many executions by name, arrays [rows] or plain values; words are positions in their choices."""

NOT_READ: frozenset[str] = frozenset(
    {"tensor_par_net", "pipeline_par_net", "data_par_net", "fused_activation", "seq_par_ag_redo"}
)
"""Fields that change no figure here; a limit on the networks chooses among placements
(`engine.cost_models.calibrated.space`)."""

IMPLIED: frozenset[str] = frozenset(
    {"optimizer_sharding", "tensor_par_net", "pipeline_par_net", "data_par_net", "attention_type", "training"}
)
"""Fields implied by others: optimizer sharding by the ZeRO stage, networks by degrees, attention by the model; all
steps are training steps."""

EAGER = by_name("launch").choices.index("eager")
FULLY_SHARDED = 3
"""ZeRO stage at which weights are gathered block by block. Source: Rajbhandari et al. 2020, section 5.3."""


def defaults(system: System, table: Mapping[str, Any]) -> Fields:
    """Return the default values of the extensions, each [rows].

    The defaults of the register, except: the ZeRO stage that `optimizer_sharding` implies, the interleaved schedule
        if stages have several chunks, and the fastest attention kernel of the system.

    Args:
        system: the system that the executions run on.
        table: fields by name, of which `optimizer_sharding` and `pipeline_interleaving` are read [rows].
    """
    sharded = np.asarray(table["optimizer_sharding"], np.int64)
    given: dict[str, Any] = NEUTRAL | {
        "zero_stage": sharded,
        "schedule": plain_schedule(np.maximum(np.asarray(table["pipeline_interleaving"], np.int64), 1)),
        "attention_kernel": ATTENTION_KERNELS.index(fastest_attention(system)),
    }
    return {
        column.name: np.broadcast_to(
            np.asarray(given[column.name], bool if column.dtype == "bool" else np.int64), sharded.shape
        ).copy()
        for column in EXTENSIONS
    }


def read(model: Model, system: System, table: pd.DataFrame) -> Parsed:
    """Return every field of a table, missing extensions filled with their defaults, and the faults of its rows.

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        table: executions, one row each, with the 23 fields and any extensions as columns.

    Raises:
        engine.ExecutionTableError: it is not a table, lacks one of the 23 columns or repeats a column.
    """
    optional = {column.name for column in EXTENSIONS}
    parsed = parse_columns(table, ALL_FIELDS, DATATYPES, optional)
    found, reason = parsed.arrays, parsed.reason
    base = {name: array for name, array in found.items() if name not in optional}
    added = defaults(system, base)
    fields = {**base, **added, **{name: found[name] for name in added if name in found}}
    for name, gap in parsed.gaps.items():
        fields[name] = np.where(gap, added[name], found[name])
    context = fields["context_par"]
    _check_plain(base, context, reason)
    check(model, system, fields, reason)
    return parsed._replace(arrays=fields)


def _check_plain(base: Fields, context: Ints, reason: ReasonNumbers) -> None:
    """The rules among the 23 that hold here too: as if context-parallel ranks were replicas."""
    ranks = np.maximum(context, 1)
    replicas = base["data_par"].astype(np.float64) * ranks
    wrong = base["tensor_par"].astype(np.float64) * base["pipeline_par"] * replicas != base["num_procs"]
    positive = (base["num_procs"] >= 1) & (base["tensor_par"] >= 1) & (base["pipeline_par"] >= 1)
    mark(reason, (("parallelism_product_with_context", wrong & positive & (base["data_par"] >= 1) & (context > 1)),))
    plain = Executions(**base)
    # The rules see a product that holds, and replicas wherever there is anybody to share with.
    held = np.where(context > 1, base["num_procs"] // ranks, base["num_procs"])
    seen = Executions(**{**base, "num_procs": held})
    alone = base["data_par"] == 1
    # Whether there is anybody to share the optimizer with is a rule of ZeRO stages here.
    seen.optimizer_sharding = plain.optimizer_sharding & ~alone
    seen.data_par_overlap = plain.data_par_overlap & ~(alone & (context > 1))
    check_fields(seen, reason)


def check(model: Model, system: System, fields: Fields, reason: ReasonNumbers) -> None:
    """Marks the rows that break a rule of this cost model; memory is checked later.

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        fields: fields of the executions by name, each [rows].
        reason: reason number of each row [rows], in which rows are marked.
    """
    shapes = model_shapes(model)
    f = fields
    experts, heads = int(shapes.experts), int(shapes.key_value_heads)
    tensor, context = np.maximum(f["tensor_par"], 1), np.maximum(f["context_par"], 1)
    pipeline, data = np.maximum(f["pipeline_par"], 1), np.maximum(f["data_par"], 1)
    expert, split = np.maximum(f["expert_par"], 1), np.maximum(f["expert_tensor_par"], 1)
    stages = pipeline * np.maximum(f["pipeline_interleaving"], 1)
    blocks = int(shapes.num_blocks)
    # With embedding and loss as layers a chunk of one layer at an end would hold no block.
    even = (blocks % stages == 0) | (((blocks + 2) % stages == 0) & (stages <= blocks)) | (f["stage_layout"] != EVEN)
    # Nothing is cut into more stages than there are blocks, however many a table asks for.
    cut = np.where((reason == FITS) & (pipeline <= blocks), np.maximum(f["stage_layout"], EVEN), EVEN)
    layouts = layout_rules(shapes, {**f, "pipeline_par": pipeline, "stage_layout": cut})
    divided = np.where(np.logical_or.reduce(list(layouts.values())), EVEN, cut)
    schedules = schedule_rules(f)
    placed = np.where(np.logical_or.reduce(list(schedules.values())), 0, np.maximum(f["schedule"], 0))
    fewest = fewest_held(shapes, pipeline, stages // pipeline, placed, divided)
    present = np.array([system.has_rate(name) for name in DATATYPES], bool)
    stages_of_zero = zero_rules(f, single_replica=data * context == 1, pipelined=pipeline > 1)
    degrees = [f[name] for name in ("context_par", "expert_par", "expert_tensor_par")]
    words = [f[column.name] < 0 for column in EXTENSIONS if column.choices]
    mark(
        reason,
        (
            ("expert_load_below_mean", f["expert_imbalance"] < 100),
            ("extension_not_positive", np.minimum(np.minimum(degrees[0], degrees[1]), degrees[2]) < 1),
            ("unknown_word", np.logical_or.reduce([f["datatype"] < 0, *words])),
            ("zero_stage_unknown", (f["zero_stage"] < 0) | (f["zero_stage"] > FULLY_SHARDED)),
            ("zero_stage_against_sharding", stages_of_zero["zero_stage_against_sharding"]),
            (
                "selective_needs_attn_only",
                (f["activation_recompute"] != ATTENTION_ONLY) & (f["selective_recompute"] != 0),
            ),
            ("recompute_blocks_of_full", (f["recompute_blocks"] > 0) & (f["activation_recompute"] != FULL)),
            ("recompute_blocks_negative", f["recompute_blocks"] < 0),
            ("fp8_parameters_of_8_bits", fp8_rule(f)),
            ("attention_of_the_model", (f["attention_type"] == 1) & np.bool_(heads != 1)),
            ("gradient_sharding_in_pipeline", stages_of_zero["gradient_sharding_in_pipeline"] & (data * context > 1)),
            ("context_not_dividing_sequence", (context > 1) & (model.seq_size % (2 * context) != 0)),
            ("expert_par_without_experts", (experts == 0) & ((expert > 1) | (split > 1))),
            ("expert_par_not_dividing_experts", np.bool_(experts > 0) & (max(experts, 1) % expert != 0)),
            ("expert_par_not_dividing_ranks", tensor * context * data % (expert * split) != 0),
            ("network_too_small", f["num_procs"] > farthest(system)),
            ("pipeline_exceeds_blocks", pipeline > blocks),
            ("stages_not_even", (f["pipeline_interleaving"] > 1) & ~even),
            *layouts.items(),
            ("offload_needs_three_blocks", offloads(f) & too_few_to_offload(fewest)),
            (
                "sequence_not_divisible",
                (f["tensor_par_comm_type"] != ALL_REDUCE)
                & tokens_undivided(f["microbatch_size"], model.seq_size, tensor, context),
            ),
            *tensor_rules(shapes, tensor).items(),
            *layer_rules(shapes, tensor, context).items(),
            *schedules.items(),
            ("datatype_not_on_system", ~present[f["datatype"]]),
        ),
    )


def layout_rules(shapes: ModelShapes, f: Mapping[str, Any]) -> dict[str, Flags]:
    """Return where a stage layout does not cut the blocks of a model, by reason code.

    Args:
        shapes: shapes of the model.
        f: fields of the executions by name, arrays that broadcast; degrees are positive.
    """
    cut, stages, chunks = f["stage_layout"], f["pipeline_par"], np.maximum(f["pipeline_interleaving"], 1)
    alone: Flags = (cut != EVEN) & (stages == 1)
    wrong = np.zeros(np.broadcast_shapes(np.shape(cut), np.shape(stages), np.shape(chunks)), bool)
    rows = np.flatnonzero(np.broadcast_to((cut != EVEN) & (stages > 1), wrong.shape))
    if len(rows):
        pattern = pattern_of(shapes)
        keys = [np.broadcast_to(each, wrong.shape).ravel()[rows] for each in (stages, chunks, cut)]
        first, which = distinct(*keys)
        found = [bool(problem_of(pattern, *(int(key[row]) for key in keys))) for row in first.tolist()]
        wrong.ravel()[rows] = np.array(found, bool)[which]
    return {"layout_needs_pipeline": alone, "layout_not_of_blocks": wrong}


def tensor_rules(shapes: ModelShapes, tensor_par: Any) -> dict[str, Any]:
    """Return where a tensor-parallel degree does not divide a size of the model, by reason code.

    The heads of keys and values do not matter to latent attention, nor the dense feed-forward width to models with
    experts, since a rank can hold a whole expert.

    Args:
        shapes: shapes of the model.
        tensor_par: tensor-parallel degrees, a number or an array [rows].
    """
    if shapes.pattern is not None:
        return undivided(tensor_par, hidden=int(shapes.hidden))
    return undivided(
        tensor_par,
        hidden=int(shapes.hidden),
        feedforward=None if shapes.experts > 0 else int(shapes.feedforward),
        attn_heads=int(shapes.attn_heads),
        key_value_heads=None if shapes.latent > 0 else int(shapes.key_value_heads),
    )


def layer_rules(
    shapes: ModelShapes, tensor_par: Any, context_par: Any, *, with_repeated: bool = True
) -> dict[str, Any]:
    """Return where a degree does not divide a size of a layer of a pattern, by reason code; nothing for other models.

    Heads of keys and values may also be fewer than tensor-parallel ranks, each of which then holds a copy of one.

    Args:
        shapes: shapes of the model.
        tensor_par, context_par: degrees, numbers or arrays [rows].
        with_repeated: False leaves out sizes that serving engines repeat on ranks.
    """
    if shapes.pattern is None:
        return {}
    split, spread = split_sizes(shapes.pattern, with_repeated=with_repeated)
    nowhere = np.zeros(np.shape(tensor_par), bool)
    both = np.asarray(tensor_par) * context_par
    alone = np.logical_or.reduce([nowhere, *(size % tensor_par != 0 for _, size in split)])
    for softmax in (layer.softmax() for block in shapes.pattern.blocks for layer in block.mixers):
        if softmax is not None and not softmax.is_latent:
            alone = alone | undivided(tensor_par, key_value_heads=softmax.kv_heads)["key_value_heads_not_divisible"]
    apart = np.logical_or.reduce([np.zeros(both.shape, bool), *(size % both != 0 for _, size in spread)])
    return {"layer_not_divisible": alone, "layer_not_divisible_by_context": apart & (np.asarray(context_par) > 1)}


def undivided_sizes(shapes: ModelShapes, code: str, tensor_par: int, context_par: int) -> str:
    """Return the sizes of layers that a degree does not divide, in words for a sentence.

    Args:
        shapes: shapes of the model.
        code: a reason of `layer_rules`.
        tensor_par, context_par: degrees.
    """
    if shapes.pattern is None:
        return ""
    split, spread = split_sizes(shapes.pattern)
    if code == "layer_not_divisible_by_context":
        found = [f"{size:,} {name}" for name, size in spread if size % (tensor_par * context_par)]
    else:
        found = [f"{size:,} {name}" for name, size in split if size % tensor_par]
        shapes_of = (layer.softmax() for block in shapes.pattern.blocks for layer in block.mixers)
        heads = {each.kv_heads for each in shapes_of if each is not None and not each.is_latent}
        found += [f"{size:,} key and value heads" for size in sorted(heads) if size % tensor_par and tensor_par % size]
    return " and ".join(found)


def zero_rules(mode: Mapping[str, Any], *, single_replica: Flags, pipelined: Flags) -> dict[str, Flags]:
    """Return where a ZeRO stage (Rajbhandari et al. 2020) contradicts the other fields, by reason code.

    Args:
        mode: fields by name, `zero_stage` and `optimizer_sharding` among them.
        single_replica: where there is one replica, so that nothing can be sharded.
        pipelined: where there is a pipeline, whose microbatches need unsharded gradients.
    """
    stage = mode["zero_stage"]
    return {
        "zero_stage_against_sharding": mode["optimizer_sharding"] != (stage >= 1),
        "sharding_needs_replicas": (stage >= 1) & single_replica,
        "gradient_sharding_in_pipeline": (stage == 2) & pipelined,
    }


EIGHT_BITS = np.array([each.bits == 8 for each in FORMATS])
"""Truth of datatypes of 8 bits, by position in `DATATYPES`."""


def fp8_rule(f: Mapping[str, Any]) -> Flags:
    """Return where parameters are held in 8 bits, but products are not in 8 bits.

    Args:
        f: fields of the executions by name, arrays that broadcast.
    """
    wrong: Flags = np.asarray(f["fp8_param_gather"], bool) & ~EIGHT_BITS[np.maximum(f["datatype"], 0)]
    return wrong


def schedule_rules(f: Mapping[str, Any]) -> dict[str, Flags]:
    """Return which executions their schedule cannot run, by reason code.

    Combined 1F1B is Megatron's: it also requires expert parallelism and excludes full recomputation, in addition to the
    counts of `schedules.refusals`.

    Args:
        f: fields of the executions by name, arrays that broadcast.
    """
    schedule = np.maximum(f["schedule"], 0)
    each = np.maximum(f["data_par"] * f["microbatch_size"], 1)
    combined: Flags = (schedule == COMBINED) & (f["pipeline_par"] > 1)
    return refusals(schedule, f["pipeline_par"], f["batch_size"] // each, f["pipeline_interleaving"]) | {
        "schedule_needs_experts": combined & (f["expert_par"] <= 1),
        "schedule_against_recompute": combined & (f["activation_recompute"] == FULL),
        "schedule_needs_training": (schedule > INTERLEAVED) & ~np.asarray(f.get("training", True), bool),
    }


READ_AS_THEY_ARE = tuple(
    item.name
    for item in (*dataclasses.fields(Layout), *dataclasses.fields(Software))
    if item.name in {column.name for column in ALL_FIELDS}
)
"""Fields that formulas read under their own name."""


def case_of_fields(model: Model, system: System, fields: Mapping[str, Any]) -> Case:
    """Return the arrays that the formulas read, from checked fields; the case caches figures computed from it.

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        fields: fields by name, arrays of any one shape [rows], or plain values.
    """
    selective, sets = _selections(len(by_name("selective_recompute").words))
    plain = {FULL: RECOMPUTES.index("full"), NONE: RECOMPUTES.index("none")}
    recompute = np.asarray(fields["activation_recompute"])
    chosen = fields["selective_recompute"]
    kind = np.where(
        recompute == ATTENTION_ONLY,
        selective[chosen],
        np.where(recompute == FULL, plain[FULL], plain[NONE]),
    )
    comm = np.asarray(fields["tensor_par_comm_type"])
    zero = np.asarray(fields["zero_stage"])
    values = {name: fields[name] for name in READ_AS_THEY_ARE}
    values |= {
        "sequence_par": comm == RS_AG,
        "split_messages": comm != 0,
        "fully_sharded": zero == FULLY_SHARDED,
        "linear_bits": LINEAR_BITS[fields["datatype"]],
        "linear_format": LINEAR_FORMATS[fields["datatype"]],
        "recompute": kind,
        "recompute_share": _recomputed_share(model, fields),
        "recompute_modules": np.where(recompute == ATTENTION_ONLY, sets[chosen], 0.0),
        "overlap_tensor": np.asarray(fields["tensor_par_overlap"]) != 0,
        "unfused_elementwise": np.asarray(fields["launch"]) == EAGER,
        # A forward pass alone has no setting for it: gathers of sharded weights are always overlapped there.
        "overlap_data": np.asarray(fields["data_par_overlap"], bool) | ~np.asarray(fields["training"], bool),
        "overlap_expert": fields["expert_overlap"],
        "overlap_pipeline": fields["pipeline_overlap"],
        "schedule": interleaved_where(fields["schedule"], fields["pipeline_interleaving"]),
        "gradient_bytes": _element_bytes("gradient_datatype", fields),
        "moment_bytes": _element_bytes("optimizer_datatype", fields),
        "shard_gradient_bytes": _element_bytes("gradient_datatype", fields),
        "fp8_parameters": fields["fp8_param_gather"],
        "dispatch_bytes": _DISPATCHED[np.asarray(fields["dispatch_datatype"])],
        "busiest_load": np.asarray(fields["expert_imbalance"]) / 100.0,
    }
    return case_of(model, system, values).remembering()


DISPATCH_BYTES: Final[Mapping[str, float]] = {"bfloat16": 2.0, "float8": 1.0 + 4.0 / 128.0}
"""Bytes of an element by `dispatch_datatype` [bytes]: 8 bits have a 32-bit scale per 128 elements (DeepSeek-V3,
arXiv:2412.19437, section 3.3)."""
_DISPATCHED: Final = np.array([DISPATCH_BYTES[word] for word in by_name("dispatch_datatype").choices])


def _recomputed_share(model: Model, fields: Mapping[str, Any]) -> Any:
    """Return the share of the blocks that full recomputation repeats [rows]: a number of each chunk, all where 0."""
    number = np.asarray(fields["recompute_blocks"])
    if not np.any(number):
        return np.ones(())
    chunks = np.asarray(fields["pipeline_par"], np.float64) * np.maximum(fields["pipeline_interleaving"], 1)
    share = np.minimum(number * chunks / float(model_shapes(model).num_blocks), 1.0)
    return np.where((number > 0) & (np.asarray(fields["activation_recompute"]) == FULL), share, 1.0)


@lru_cache(maxsize=8)
def _selections(number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the kind of recomputation of every word of selective recomputation, and its set of modules [words]."""
    column = by_name("selective_recompute")
    kinds = ["selective", *column.choices[1:]]
    modules = [modules_of_word(word) for word in column.words[len(kinds) : number]]
    found = [RECOMPUTES.index(kind) for kind in kinds] + [BY_MODULE] * len(modules)
    return np.array(found), np.array([0.0] * len(kinds) + [module_bits(each) for each in modules])


def _element_bytes(name: str, fields: Mapping[str, Any]) -> Any:
    """Return the bytes of an element in the datatype that a field names [bytes]."""
    sizes = np.array([datatypes.named(word).num_bytes for word in by_name(name).choices])
    return sizes[np.asarray(fields[name])]
