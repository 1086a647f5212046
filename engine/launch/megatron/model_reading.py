"""The model that arguments of Megatron-Core describe, in the words of `engine.launch.shapes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from engine.launch.megatron.arguments import Arguments
from engine.launch.megatron.hybrid_patterns import SPARSE, VARIANT
from engine.launch.megatron.pattern_reading import (
    delta_net_blocks,
    has_hybrid_pattern,
    has_pattern,
    layer_list,
    stages_of_pattern,
    stated_pattern,
)
from engine.launch.report import OpenValue, Report
from engine.launch.shapes import pattern_word, words_of_blocks
from models.layers import Block, runs_of

__all__ = ["read_model"]

_USUAL_SPEC: Final = "hybrid_stack_spec"
"""Modules of patterns of layers as Megatron-LM has them (hybrid_layer_specs.py)."""
_POSITIONS: Final = {
    "learned_absolute": "learned",
    "rope": "rotary",
    "yarn": "rotary",
    "mrope": "rotary",
    "relative": "relative",
    "none": "none",
    "": "learned",
}


def read_model(args: Arguments, report: Report) -> None:
    """Write the model into the report.

    Args:
        args: arguments of the run.
        report: receives the fields of the model.
    """
    model, describe = report.model, report.describe
    for word, destinations in (
        ("layers", ("num_layers", "encoder_num_layers")),
        ("hidden", ("hidden_size",)),
        ("heads", ("num_attention_heads",)),
        ("seq", ("seq_length", "encoder_seq_length")),
        ("vocab", ("vocab_size", "padded_vocab_size")),
    ):
        if word != "layers" or not has_hybrid_pattern(args):  # a pattern overrides --num-layers
            describe(word, partial(_first_number, args, destinations))
    if not args.dialect.assumes_model and not {"layers", "hidden"} & {*model.origins}:
        return
    if has_pattern(args):
        _read_pattern(args, report)
        return
    describe("gated_mlp", lambda: args.on("swiglu") or args.on("quick_geglu") or args.on("gated_linear_unit"))
    describe("ffn", partial(_read_feedforward, args, model))
    describe("tied_embeddings", lambda: not args.on("untie_embeddings_and_output_weights"))
    _read_attention(args, report)
    describe("norm", lambda: "RMSNorm" if args.word("normalization") == "rmsnorm" else "LayerNorm")
    describe("linear_bias", lambda: args.on("add_bias_linear"))
    describe("qk_norm", lambda: args.on("qk_layernorm"))
    describe("positions", lambda: _read_positions(args))
    describe(
        "rope_theta", lambda: float(args.number("rotary_base", 10_000)) if model["positions"] == "rotary" else None
    )
    _read_experts(args, report)
    describe("mtp_layers", lambda: args.number("mtp_num_layers", 0, 0) or None)
    if "mtp_layers" in model.values_known:
        number = model.values_known["mtp_layers"]
        report.not_modelled(f"{args.name('mtp_num_layers')} {number}: by the calibrated cost model only")


def _read_pattern(args: Arguments, report: Report) -> None:
    """Write a model with a pattern of layers into the report."""
    model, describe = report.model, report.describe
    describe("tied_embeddings", lambda: not args.on("untie_embeddings_and_output_weights"))
    describe("norm", lambda: "RMSNorm" if args.word("normalization") == "rmsnorm" else "LayerNorm")
    blocks: list[Block] = []

    def pattern() -> dict[str, Any]:
        hidden = int(model["hidden"])
        gated = args.on("swiglu") or args.on("quick_geglu") or args.on("gated_linear_unit")
        feedforward = _feedforward_width(args, hidden, gated)
        if has_hybrid_pattern(args):
            blocks.extend(block for stage in stages_of_pattern(args, hidden, feedforward) for block in stage)
        else:
            blocks.extend(delta_net_blocks(args, hidden, feedforward, model["layers"]))
        return pattern_word(*runs_of(blocks))

    describe("pattern", pattern)
    if "pattern" not in model.origins:
        return  # the caller names another model
    words = words_of_blocks(blocks) | {"layers": len(blocks)}
    for word in words if blocks else ("layers",):
        describe(word, partial(_follow_pattern, model, words[word]))
    if has_hybrid_pattern(args) and blocks:
        report.note(partial(_remark_pattern, args, report))


def _follow_pattern(model: Mapping[str, Any], value: Any) -> Any:
    """Return a value that follows from the pattern of layers, with the pattern's origin."""
    model["pattern"]
    return value


def _remark_pattern(args: Arguments, report: Report) -> None:
    """Name silent changes of the parser to a pattern of letters, and its parts that are not modelled."""
    found = stated_pattern(args)
    letters = sum(map(len, found.segments))
    named = args["num_layers"]
    if named is not None and args.number("num_layers") != letters:
        report.remark(f"{args.name('num_layers')} {named} has no effect: the pattern has {letters} layers.")
    if found.depths:
        report.not_modelled(f"{found.depths} x {found.predictions} after / of the pattern: prediction layers")
    spec = args["spec"]
    if spec is not None and not str(spec).rstrip("'\"] ").endswith(_USUAL_SPEC):
        report.not_modelled(f"{args.name('spec')}: modules of its own in place of Megatron-LM's")
    if len(found.segments) == 1 and args.number("pipeline_model_parallel_size", 1) > 1:
        report.remark("The pattern has no | between stages; its layers are divided evenly.")


def _first_number(args: Arguments, destinations: Sequence[str]) -> int | None:
    return next((args.number(each) for each in destinations if args[each] is not None), None)


def _read_feedforward(args: Arguments, model: Mapping[str, Any]) -> int | None:
    if args["ffn_hidden_size"] is not None:
        return args.number("ffn_hidden_size")
    if "hidden" not in model:
        return None
    return _feedforward_width(args, int(model["hidden"]), model["gated_mlp"])


def _feedforward_width(args: Arguments, hidden: int, gated: bool) -> int:
    """Return the width of an ordinary MLP [elements]."""
    if args["ffn_hidden_size"] is not None:
        return args.number("ffn_hidden_size")
    # arguments.py, validate_args: 8/3 of the width in multiples of 64 with a gate, else 4 times the width.
    return 8 * hidden // 3 // 64 * 64 if gated else 4 * hidden


def _read_positions(args: Arguments) -> str:
    if "use_rotary_position_embeddings" in args and args.on("use_rotary_position_embeddings"):
        return "rotary"  # the flag of earlier versions, which the parser still takes
    kind = args.word("position_embedding_type")
    if args["add_position_embedding"] is False and kind in ("", "learned_absolute"):
        return "none"
    return _POSITIONS.get(kind, "learned")


def _read_attention(args: Arguments, report: Report) -> None:
    model, describe = report.model, report.describe
    if "heads" not in model.origins:
        return
    describe("kv_heads", partial(_key_heads, args, report))
    describe(
        "head_dim",
        lambda: (
            args.number("kv_channels")
            if args["kv_channels"] is not None
            else model["hidden"] // model["heads"]
            if "hidden" in model
            else None
        ),
    )
    # Megatron-Core's defaults of latent attention: MLATransformerConfig.
    describe(
        "q_rank",
        lambda: (
            args.number("q_lora_rank")
            if args.on("multi_latent_attention") and args["q_lora_rank"] is not None
            else None
        ),
    )
    for word, destination, usual in (
        ("kv_rank", "kv_lora_rank", 32),
        ("nope_head_dim", "qk_head_dim", 128),
        ("rope_head_dim", "qk_pos_emb_head_dim", 64),
        ("v_head_dim", "v_head_dim", 128),
    ):
        describe(word, partial(_read_latent, args, destination, usual))
    _read_indexer(args, report)


def _read_indexer(args: Arguments, report: Report) -> None:
    """Write the indexer of sparse latent attention into the report, if it is stated whole and each layer has one."""
    words = {
        "index_heads": "dsa_indexer_n_heads",
        "index_head_dim": "dsa_indexer_head_dim",
        "index_top_k": "dsa_indexer_topk",
    }
    if any(destination not in args for destination in words.values()):
        return
    try:
        is_sparse = args.word(VARIANT) == SPARSE and args.on("multi_latent_attention")
        if not is_sparse or args["dsa_indexer_topk_freq"] not in (None, 1):
            return
    except OpenValue:
        return
    for word, destination in words.items():
        report.describe(word, partial(args.number, destination))


def _read_latent(args: Arguments, destination: str, usual: int) -> int | None:
    return args.number(destination, usual) if args.on("multi_latent_attention") else None


def _key_heads(args: Arguments, report: Report) -> int:
    heads = int(report.model["heads"])
    if "num_key_value_heads" in args:  # Megatron-DeepSpeed needs no flag beside it
        return args.number("num_key_value_heads")
    if args.dialect.needs_group_flag:
        grouped = args.on("group_query_attention")
    else:
        grouped = args.given("num_query_groups") is not None
    latent = args.on("multi_latent_attention") if "multi_latent_attention" in args or not grouped else False
    if not latent and grouped:
        return args.number("num_query_groups", 1)
    if not latent and args.given("num_query_groups") is not None and args.number("num_query_groups") != heads:
        report.remark(
            f"{args.name('num_query_groups')} has no effect without {args.name('group_query_attention')}: "
            f"{heads} heads keep {heads} key and value heads."
        )
    return heads


def _read_experts(args: Arguments, report: Report) -> None:
    model, describe = report.model, report.describe
    top_k, interval = args.dialect.expert_defaults

    def number_of_experts() -> int | None:
        # Megatron-DeepSpeed takes a number per layer, one for layers without experts.
        found = args.words("num_experts")
        return max(args.number("num_experts") if len(found) < 2 else max(map(int, found)), 1) if found else None

    def if_any(value: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: value() if "experts" in model else None

    describe("experts", number_of_experts)
    if model.known("experts") == 1 and interval > 1:
        del (
            model.values_known["experts"],
            model.origins["experts"],
        )  # Megatron-DeepSpeed's default: one expert is an ordinary layer
    if "experts" not in model.origins:
        return
    routed = "topk" if interval > 1 else "moe_router_topk"
    describe("top_k", if_any(lambda: args.number(routed, top_k)))
    describe(
        "expert_ffn",
        if_any(
            lambda: (
                args.number("moe_ffn_hidden_size", model["ffn"])
                if args["moe_ffn_hidden_size"] is not None or "ffn" in model
                else None
            )
        ),
    )
    describe("shared_ffn", if_any(lambda: args.number("moe_shared_expert_intermediate_size", 0, 0)))

    def pattern() -> int | list[int]:
        if interval > 1:
            return args.number("expert_interval", interval)
        given = args["moe_layer_freq"]
        return 1 if given is None else layer_list(given, args.name("moe_layer_freq"))

    describe("moe_layer_freq", if_any(pattern))
