"""The model that arguments of Megatron-Core describe, in the words of `engine.launch.shapes`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.megatron.arguments import Arguments
from engine.launch.report import Report
from models.documents import shown

__all__ = ["layer_pattern", "read_model"]

_POSITIONS: Final = {
    "learned_absolute": "learned",
    "rope": "rotary",
    "yarn": "rotary",
    "mrope": "rotary",
    "relative": "relative",
    "none": "none",
    "": "learned",
}
_TERM: Final = re.compile(r"\(?\[([01](?:,[01])*)\]\)?(?:\*(\d{1,5}))?")


def layer_pattern(value: Any, name: str) -> int | list[int]:
    """Returns which layers have experts: 1 or n for every n-th, or a list with a 1 for each that has.

    Args:
        value: a number, a list, or sums and products of lists as text, such as "([0]*3+[1]*58)".
        name: of the flag, for the message.

    Raises `LaunchError` for anything else.
    """
    if isinstance(value, list | tuple) and all(each in (0, 1) for each in value) and 0 < len(value) <= 100_000:
        return [int(each) for each in value]
    text = re.sub(r"\s", "", str(value))[:10_000]
    if text.isdecimal() and 0 < int(text[:9]) <= 100_000:
        return int(text[:9])
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    found: list[int] = []
    for term in inner.split("+"):
        match = _TERM.fullmatch(term)
        if match is None or len(found) > 100_000:
            raise LaunchError(f"{name} is {shown(value)}; it must be a number or a list such as ([0]*3+[1]*58).")
        found += [int(each) for each in match[1].split(",")] * min(int(match[2] or 1), 100_000)
    return found


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
        describe(word, partial(_first_number, args, destinations))
    if not args.dialect.assumes_model and not {"layers", "hidden"} & {*model.origins}:
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


def _first_number(args: Arguments, destinations: Sequence[str]) -> int | None:
    return next((args.number(each) for each in destinations if args[each] is not None), None)


def _read_feedforward(args: Arguments, model: Mapping[str, Any]) -> int | None:
    if args["ffn_hidden_size"] is not None:
        return args.number("ffn_hidden_size")
    if "hidden" not in model:
        return None
    # arguments.py, validate_args: 8/3 of the width in multiples of 64 with a gate, else 4 times the width.
    hidden = int(model["hidden"])
    return 8 * hidden // 3 // 64 * 64 if model["gated_mlp"] else 4 * hidden


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
        return 1 if given is None else layer_pattern(given, args.name("moe_layer_freq"))

    describe("moe_layer_freq", if_any(pattern))
