"""The model that arguments of Megatron-Core describe, in the words of `engine.launch.shapes`."""

from __future__ import annotations

import re
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.megatron.arguments import Arguments
from engine.launch.report import Report
from models.documents import shown

__all__ = ["layer_pattern", "read_model"]

_POSITIONS: Final = {
    "learned_absolute": "learned", "rope": "rotary", "yarn": "rotary", "mrope": "rotary", "relative": "relative",
    "none": "none", "": "learned",
}  # fmt: skip
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
    """Puts the model into the report.

    Args:
        args: what was said.
        report: what is found.
    """
    model = report.model
    for word, destination in (
        ("layers", "num_layers"), ("hidden", "hidden_size"), ("heads", "num_attention_heads"), ("seq", "seq_length"),
    ):  # fmt: skip
        if args[destination] is not None:
            model[word] = args.number(destination)
    vocab = "vocab_size" if args["vocab_size"] is not None else "padded_vocab_size"
    if args[vocab] is not None:
        model["vocab"] = args.number(vocab)
    if not args.dialect.assumes_model and "layers" not in model and "hidden" not in model:
        return
    gated = args.on("swiglu") or args.on("quick_geglu") or args.on("gated_linear_unit")
    model["gated_mlp"] = gated
    if args["ffn_hidden_size"] is not None:
        model["ffn"] = args.number("ffn_hidden_size")
    elif "hidden" in model:
        model["ffn"] = 8 * model["hidden"] // 3 // 64 * 64 if gated else 4 * model["hidden"]
    model["tied_embeddings"] = not args.on("untie_embeddings_and_output_weights")
    _attention(args, report)
    model["norm"] = "RMSNorm" if args.word("normalization") == "rmsnorm" else "LayerNorm"
    model["linear_bias"] = args.on("add_bias_linear")
    model["qk_norm"] = args.on("qk_layernorm")
    model["positions"] = _POSITIONS.get(args.word("position_embedding_type"), "learned")
    if model["positions"] == "rotary":
        model["rope_theta"] = float(args.number("rotary_base", 10_000))
    if args["num_experts"] is not None:
        _experts(args, report)
    if args["mtp_num_layers"] is not None and args.number("mtp_num_layers", 0, 0):
        model["mtp_layers"] = args.number("mtp_num_layers")
        report.not_modelled(f"{args.name('mtp_num_layers')} {model['mtp_layers']}: by the calibrated cost model only")


def _attention(args: Arguments, report: Report) -> None:
    model = report.model
    if "heads" not in model:
        return
    heads = model["heads"]
    latent = args.on("multi_latent_attention")
    flagged = args.dialect.needs_group_flag
    grouped = args.on("group_query_attention") if flagged else args.said.get("num_query_groups") is not None
    if latent or not grouped:
        model["kv_heads"] = heads
        if not latent and args.said.get("num_query_groups") is not None and args.number("num_query_groups") != heads:
            report.remark(
                f"{args.name('num_query_groups')} has no effect without {args.name('group_query_attention')}: "
                f"{heads} heads keep {heads} key and value heads."
            )
    else:
        model["kv_heads"] = args.number("num_query_groups", 1)
    if args["kv_channels"] is not None:
        model["head_dim"] = args.number("kv_channels")
    elif "hidden" in model:
        model["head_dim"] = model["hidden"] // heads
    if latent:
        if args["q_lora_rank"] is not None:
            model["q_rank"] = args.number("q_lora_rank")
        for word, destination in (
            ("kv_rank", "kv_lora_rank"), ("nope_head_dim", "qk_head_dim"), ("rope_head_dim", "qk_pos_emb_head_dim"),
            ("v_head_dim", "v_head_dim"),
        ):  # fmt: skip
            model[word] = args.number(destination, {"kv_rank": 32, "rope_head_dim": 64}.get(word, 128))


def _experts(args: Arguments, report: Report) -> None:
    model = report.model
    model["experts"] = args.number("num_experts")
    model["top_k"] = args.number("moe_router_topk", 2)
    width = args["moe_ffn_hidden_size"]
    if width is not None or "ffn" in model:
        model["expert_ffn"] = args.number("moe_ffn_hidden_size", model.get("ffn"))
    model["shared_ffn"] = args.number("moe_shared_expert_intermediate_size", 0, 0)
    pattern = args["moe_layer_freq"]
    model["moe_layer_freq"] = 1 if pattern is None else layer_pattern(pattern, args.name("moe_layer_freq"))
