"""Layers as contractions and the operations between them, by labels: transformer, gated MLP, experts in groups.

Labels: `b` sequences, `s` positions, `z` positions of keys, `h` the residual stream, `a` heads of keys, `r` query heads
of each, `d` width of a head, `x` queries, keys and values, `f` width of the MLP, `e` experts, `g` groups of `t` tokens,
`c` places of an expert in a group; of latent attention `latent_q`, `latent_kv`, `rope` (the shared part of keys),
`wide` (what a head expands to of keys and values) and `value` (width of a head of values); `shared` the width of
shared experts, `n` what one expert is visited by where tokens are sorted by expert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.planners.intra_operator.contractions import Contraction, Operand

__all__ = [
    "Between",
    "LayerGraph",
    "attention",
    "gated_mlp",
    "latent_attention",
    "linear",
    "mlp",
    "reading",
    "sorted_experts",
]


@dataclass(frozen=True, slots=True)
class Between:
    """Operations between a contraction and its users that are no contractions themselves, and the tensors they make.

    A split of a label in `over` is not free to pass: the operation reduces or scans along it.
    """

    after: str
    name: str
    over: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    keeps: bool = False
    """True if its input is stored for the backward pass, as for an activation function."""


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """The contractions of a layer in the order of the program, operations between them, and the size of every label.

    `after_attention` is the contraction at whose result the first residual is added, if any. `reads` has for a
    contraction with a weight the contraction whose result it reads, "" for the layer's input. With `beside` attention
    and MLP read the same input. `visits` are the experts of a token where tokens are sorted by expert, 0 elsewhere;
    contractions in `joined` share the block before them; `window` is the number of positions that attention looks back
    at, None for all.
    """

    name: str
    contractions: tuple[Contraction, ...]
    between: tuple[Between, ...]
    sizes: Mapping[str, int]
    after_attention: str | None = None
    reads: Mapping[str, str] = field(default_factory=dict)
    beside: bool = False
    visits: int = 0
    joined: tuple[str, ...] = ()
    window: int | None = None
    vocabulary: int = 0
    """Parameters of embedding, positions, last norm and head, which the model has once [elements]; 0 where they are
    left out."""
    logits: int = 0
    """Scores of all words for every token [elements]."""

    @property
    def flop(self) -> float:
        """Returns the arithmetic operations of the contractions, forward [FLOP]."""
        return sum(each.flop(self.sizes) for each in self.contractions)


T: Final = ("b", "s")
H: Final = ("h",)


def attention(*, separate: bool = False, grouped: bool = False) -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of attention, and the operations between them.

    Args:
        separate: whether queries, keys and values are projected by three weights instead of one.
        grouped: whether `r` query heads share each of the `a` heads of keys and values; these are projected apart.
    """
    x = Operand("x", (T, H))
    rows = ("r", "s") if grouped else ("s",)
    # q k^T and p v per head; with grouped queries r x s rows share the keys of a head.
    queries = Operand("q", (("b",), ("a",), rows, ("d",)))
    keys = Operand("k", (("b",), ("a",), ("z",), ("d",)))
    values = Operand("v", (("b",), ("a",), ("z",), ("d",)))
    scores = Operand("scores", (("b",), ("a",), rows, ("z",)))
    mixed = Operand("mixed", (("b",), ("a",), rows, ("d",)))
    separate = separate or grouped
    heads = ("a", "r", "d") if grouped else ("a", "d")
    wide = {"q": heads, "k": ("a", "d"), "v": ("a", "d")} if separate else {"qkv": ("a", "x", "d")}
    projections = tuple(
        Contraction(name, x, Operand(f"w_{name}", (H, each), weight=True), Operand(f"{name}_out", (T, each)))
        for name, each in wide.items()
    )
    joined = Operand("joined", (T, heads))
    contractions = (
        *projections,
        Contraction("qk", queries, keys, scores),
        Contraction("av", scores, values, mixed),
        Contraction("out", joined, Operand("w_out", (heads, H), weight=True), Operand("out_out", (T, H))),
    )
    split = "reshape to heads, transpose" if separate else "reshape to heads, split in three, transpose"
    return contractions, (
        *(Between(each.name, split, makes=(each.name,) if separate else ("q", "k", "v")) for each in projections),
        Between("qk", "scale, mask, softmax over keys", ("z",)),
        Between("av", "transpose, reshape to tokens"),
        Between("out", "bias, residual, norm", ("h",)),
    )


def latent_attention(*, compressed_queries: bool = True) -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of multi-head latent attention, and the operations between them.

    Queries and keys with values are expanded from latents that all heads share (DeepSeek-V2, arXiv:2405.04434,
    equations 37 to 47).

    Args:
        compressed_queries: whether queries come from a latent too, else from the layer's input.
    """
    x = Operand("x", (T, H))
    down = {"kv_down": ("latent_kv",), "k_rope": ("rope",)}
    if compressed_queries:
        down = {"q_down": ("latent_q",), **down}
    compress = tuple(
        Contraction(name, x, Operand(f"w_{name}", (H, each), weight=True), Operand(f"{name}_out", (T, each)))
        for name, each in down.items()
    )
    # DeepSeek-V2, eq. 37 to 47: down-projections to latents, then up-projections to heads.
    inner, source = (("latent_q",), "latent_queries") if compressed_queries else (H, "x_queries")
    up = (
        Contraction(
            "q_up",
            Operand(source, (T, inner)),
            Operand("w_q_up", (inner, ("a", "d")), weight=True),
            Operand("q_up_out", (T, ("a", "d"))),
        ),
        Contraction(
            "kv_up",
            Operand("latent_keys", (T, ("latent_kv",))),
            Operand("w_kv_up", (("latent_kv",), ("a", "wide")), weight=True),
            Operand("kv_up_out", (T, ("a", "wide"))),
        ),
    )
    queries = Operand("q", (("b",), ("a",), ("s",), ("d",)))
    keys = Operand("k", (("b",), ("a",), ("z",), ("d",)))
    values = Operand("v", (("b",), ("a",), ("z",), ("value",)))
    scores = Operand("scores", (("b",), ("a",), ("s",), ("z",)))
    mixed = Operand("mixed", (("b",), ("a",), ("s",), ("value",)))
    heads = ("a", "value")
    joined = Operand("joined", (T, heads))
    return (
        *compress,
        *up,
        Contraction("qk", queries, keys, scores),
        Contraction("av", scores, values, mixed),
        Contraction("out", joined, Operand("w_out", (heads, H), weight=True), Operand("out_out", (T, H))),
    ), (
        *(Between(each.name, "norm of the latent", each.out.dims[1]) for each in compress if each.name != "k_rope"),
        Between("q_up", "reshape to heads, rotate, transpose", makes=("q",)),
        Between("kv_up", "reshape to heads, join the rotated key, transpose", makes=("k", "v")),
        Between("qk", "scale, mask, softmax over keys", ("z",)),
        Between("av", "transpose, reshape to tokens"),
        Between("out", "residual, norm", ("h",)),
    )


def mlp() -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of an MLP of two weights, and the operations between them."""
    return (
        _build_product("fc1", H, ("f",)),
        _build_product("fc2", ("f",), H),
    ), (Between("fc1", "bias, GELU", keeps=True), Between("fc2", "bias, residual, norm", ("h",)))


def gated_mlp() -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of an MLP that multiplies two branches, and the operations between them."""
    return (
        _build_product("gate_proj", H, ("f",), "mlp_in"),
        _build_product("up_proj", H, ("f",), "mlp_in"),
        _build_product("down_proj", ("f",), H),
    ), (
        Between("gate_proj", "SiLU", keeps=True),
        Between("up_proj", "product of both branches", keeps=True),
        Between("down_proj", "residual, norm", ("h",)),
    )


def sorted_experts(*, gated: bool, shared: bool) -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of a mixture of experts whose tokens are sorted by expert, and the operations between
    them.

    No token is dropped and no mask multiplied: sorting moves bytes and computes nothing (MegaBlocks, Gale et al.,
    MLSys 2023). Every expert has `n` visits; shared experts are one MLP that every token visits.

    Args:
        gated: whether experts multiply two branches.
        shared: whether there are shared experts.
    """
    # A batched product over experts, each with n sorted tokens.
    visits = Operand("visits", (("e",), ("n",), H))
    inside = Operand("expert_inside", (("e",), ("n",), ("f",)))
    names = ("expert_gate", "expert_up") if gated else ("expert_up",)
    found = [
        Contraction(
            "router",
            Operand("routed", (T, H)),
            Operand("w_router", (H, ("e",)), weight=True),
            Operand("logits", (T, ("e",))),
        ),
        *(
            Contraction(
                name,
                visits,
                Operand(f"w_{name}", (("e",), H, ("f",)), weight=True),
                Operand(f"{name}_out", (("e",), ("n",), ("f",))),
            )
            for name in names
        ),
        Contraction(
            "expert_down",
            inside,
            Operand("w_expert_down", (("e",), ("f",), H), weight=True),
            Operand("expert_out", (("e",), ("n",), H)),
        ),
    ]
    lying = [
        Between("router", "softmax and choice over experts, sorting of tokens by expert", ("e", "t")),
        *(Between(name, "activation", keeps=True) for name in names),
        Between("expert_down", "weighted sum of a token's visits, residual, norm", ("h",)),
    ]
    if shared:
        wide = ("shared",)
        ahead = ("shared_gate", "shared_up") if gated else ("shared_up",)
        found += [_build_product(name, H, wide, "shared_in") for name in ahead]
        found.append(_build_product("shared_down", wide, H))
        lying += [Between(name, "activation", keeps=True) for name in ahead]
    return tuple(found), tuple(lying)


def linear(name: str) -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns one linear layer with its activation.

    Args:
        name: of the contraction.
    """
    return (_build_product(name, H, ("o",)),), (Between(name, "bias, activation"),)


def _build_product(name: str, inner: tuple[str, ...], outer: tuple[str, ...], source: str = "") -> Contraction:
    return Contraction(
        name,
        Operand(source or f"{name}_in", (T, inner)),
        Operand(f"w_{name}", (inner, outer), weight=True),
        Operand(f"{name}_out", (T, outer)),
    )


INPUT: Final = ("qkv", "q", "k", "v", "q_down", "kv_down", "k_rope")
RESIDUAL: Final = ("fc1", "gate_proj", "up_proj", "router", "gate", "shared_gate", "shared_up")
CHAINED: Final = {"kv_up": "kv_down", "out": "av", "fc2": "fc1", "down_proj": "up_proj"}


def reading(contractions: Sequence[Contraction], *, beside: bool = False) -> dict[str, str]:
    """Returns the contraction that makes the input of each one with a weight, "" for the input of the layer.

    Args:
        contractions: of a layer, in the order of the program.
        beside: whether the MLP reads the layer's input, as attention does.
    """
    names = {each.name for each in contractions}
    residual = "" if beside or "out" not in names else "out"
    made = {**dict.fromkeys(INPUT, ""), **dict.fromkeys(RESIDUAL, residual), **CHAINED}
    made["q_up"] = "q_down" if "q_down" in names else ""
    return {name: made[name] for name in sorted(names & set(made))}
