"""Layers as contractions and what lies between them, by labels: transformer, gated MLP, experts in groups.

Labels: `b` sequences, `s` positions, `z` positions of keys, `h` the residual stream, `a` heads of keys, `r` query heads
of each, `d` width of a head, `x` queries, keys and values, `f` width of the MLP, `e` experts, `g` groups of `t` tokens,
`c` places of an expert in a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.planners.intra_operator.contractions import Contraction, Operand

__all__ = ["Between", "LayerGraph", "attention", "gated_mlp", "grouped_experts", "linear", "mlp"]


@dataclass(frozen=True, slots=True)
class Between:
    """Operations between a contraction and its users that are no contractions themselves, and the tensors they make.

    A split of a label in `over` is not free to pass: the operation reduces or scans along it.
    """

    after: str
    name: str
    over: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """The contractions of a layer in the order of the program, operations between them, and the size of every label.

    `after_attention` is the contraction at whose result the first residual is added, None where there is none.
    """

    name: str
    contractions: tuple[Contraction, ...]
    between: tuple[Between, ...]
    sizes: Mapping[str, int]
    after_attention: str | None = None

    @property
    def flop(self) -> float:
        """Returns the arithmetic operations of the contractions, forward [FLOP]."""
        return sum(each.flop(self.sizes) for each in self.contractions)


T: Final = ("b", "s")
H: Final = ("h",)


def attention(*, separate: bool = False, grouped: bool = False) -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of attention, and what lies between them.

    Args:
        separate: whether queries, keys and values are projected by three weights instead of one.
        grouped: whether `r` query heads share each of the `a` heads of keys and values; these are projected apart.
    """
    x = Operand("x", (T, H))
    rows = ("r", "s") if grouped else ("s",)
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


def mlp() -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of an MLP of two weights, and what lies between them."""
    return (
        _product("fc1", H, ("f",)),
        _product("fc2", ("f",), H),
    ), (Between("fc1", "bias, GELU"), Between("fc2", "bias, residual, norm", ("h",)))


def gated_mlp() -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of an MLP that multiplies two branches, and what lies between them."""
    return (
        _product("gate_proj", H, ("f",), "mlp_in"),
        _product("up_proj", H, ("f",), "mlp_in"),
        _product("down_proj", ("f",), H),
    ), (
        Between("gate_proj", "SiLU"),
        Between("up_proj", "product of both branches"),
        Between("down_proj", "residual, norm", ("h",)),
    )


def grouped_experts() -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of a mixture of experts as GShard computes it, with masks over places, and what lies
    between them.

    Tokens are cut into groups, each of which has `c` places in every expert (Lepikhin et al., ICLR 2021). In the
    second product of an expert the weight is the left operand, as CFP's published plan has it.
    """
    tokens = ("g", "t")
    places = ("g", "c")
    x = Operand("x", (tokens, H))
    grouped = Operand("x", (("g",), ("t",), H))
    mask = Operand("mask", (("g",), ("t",), ("e",), ("c",)))
    sent = Operand("sent", (("g",), ("e",), ("c",), H))
    experts_in = Operand("expert_in", (("e",), places, H))
    inside = Operand("expert_inside", (("e",), places, ("f",)))
    experts_out = Operand("expert_out", (("e",), H, places))
    returned = Operand("returned", (("g",), ("e",), ("c",), H))
    return (
        Contraction("gate", x, Operand("w_gate", (H, ("e",)), weight=True), Operand("logits", (tokens, ("e",)))),
        Contraction("dispatch", mask, grouped, sent),
        Contraction("up", experts_in, Operand("w_up", (("e",), H, ("f",)), weight=True), inside),
        Contraction("down", Operand("w_down", (("e",), ("f",), H), weight=True), inside, experts_out),
        Contraction("combine", mask, returned, Operand("moe_out", (("g",), ("t",), H))),
    ), (
        Between("gate", "softmax and top two over experts, places by a scan over tokens", ("e", "t"), ("mask",)),
        Between("dispatch", "transpose to experts"),
        Between("up", "activation"),
        Between("down", "transpose to groups"),
        Between("combine", "residual, norm", ("h",)),
    )


def linear(name: str) -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns one linear layer with its activation.

    Args:
        name: of the contraction.
    """
    return (_product(name, H, ("o",)),), (Between(name, "bias, activation"),)


def _product(name: str, inner: tuple[str, ...], outer: tuple[str, ...], source: str = "") -> Contraction:
    return Contraction(
        name,
        Operand(source or f"{name}_in", (T, inner)),
        Operand(f"w_{name}", (inner, outer), weight=True),
        Operand(f"{name}_out", (T, outer)),
    )
