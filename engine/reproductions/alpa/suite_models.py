"""The models that CFP and Alpa published figures of, by suite: GPT, GShard mixtures of experts, LLaMA.

Source: Alpa, `benchmark/alpa/suite_manual_gpt.py` and `suite_manual_moe.py`; CFP's cases for LLaMA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.planners.contract import PlanError
from engine.planners.intra_operator.contractions import Contraction, Operand
from engine.planners.intra_operator.layer_graphs import (
    Between,
    LayerGraph,
    attention,
    gated_mlp,
    mlp,
    reading,
)

__all__ = [
    "GPT",
    "LLAMA",
    "MOE",
    "SuiteModels",
    "is_suite",
    "split_name",
    "suite_depth",
    "suite_layers",
    "unknown_model",
]

GPT: Final = {
    "A": (1024, 768, 12, 12, 51200),
    "B": (1024, 1024, 24, 16, 51200),
    "C": (1024, 1536, 24, 16, 51200),
    "D": (1024, 2048, 24, 32, 51200),
    "E": (1024, 2560, 32, 32, 51200),
    "F": (1024, 4096, 32, 32, 51200),
    "G": (1024, 5120, 48, 40, 51200),
    "H": (1024, 8192, 48, 64, 51200),
    "I": (1024, 10240, 60, 80, 51200),
}
"""Name -> sequence length, hidden size, layers, heads, vocabulary."""
MOE: Final = {
    "A": (1024, 768, 8, 16, 32000, 8, 2048),
    "B": (1024, 768, 8, 16, 32000, 16, 2048),
    "C": (1024, 768, 16, 16, 32000, 16, 2048),
    "D": (1024, 1024, 16, 16, 32000, 16, 2048),
    "E": (1024, 1280, 16, 16, 32000, 32, 2048),
    "F": (1024, 1536, 16, 16, 32000, 32, 2048),
    "G": (1024, 2048, 16, 16, 32000, 48, 2048),
    "H": (1024, 2048, 32, 16, 32000, 64, 2048),
    "I": (1024, 2048, 32, 16, 32000, 128, 2048),
}
"""Name -> sequence length, hidden size, layers, heads, vocabulary, experts, tokens of a group."""
LLAMA: Final = (128, 4096, 32, 32, 32000)
"""Sequence length, hidden size, layers, heads, vocabulary. Source: Llama 7B (arXiv:2302.13971), with the sequences of
CFP's cases."""
LLAMA_FFN: Final = 11008
"""Width of its feed-forward layer [elements]. Source: the published configuration of Llama 7B."""
_HIDDEN: Final = ("h",)
MOST: Final = 10**6
"""Most layers, samples or tokens of a request. Source: stated by us."""


def is_suite(name: object) -> bool:
    """Returns whether a name is meant for a model of the suites: llama, or gpt or moe with one letter.

    Args:
        name: such as "gpt F".
    """
    family, letter = split_name(name) if isinstance(name, str) else ("", "")
    return (family, letter) == ("llama", "") or (family in ("gpt", "moe") and len(letter) == 1 and letter.isalpha())


def suite_depth(name: str) -> int:
    """Returns how many layers a model of the suites has.

    Args:
        name: such as "gpt F".

    Raises:
        PlanError: there is no such model.
    """
    family, letter = split_name(name)
    if family == "llama" and not letter:
        return LLAMA[2]
    for called, suite in (("gpt", GPT), ("moe", MOE)):
        if family == called and letter in suite:
            return suite[letter][2]
    raise unknown_model(name)


def split_name(name: str) -> tuple[str, str]:
    """Return family and letter of a model of the suites, such as ("gpt", "F").

    Args:
        name: of the model, such as "gpt F".

    Raises:
        PlanError: the name is no text.
    """
    if not isinstance(name, str):
        raise unknown_model(str(name))
    family, _, letter = name.strip().lower().replace("_", " ").replace("-", " ").partition(" ")
    return family, letter.strip().upper()


def unknown_model(name: str) -> PlanError:
    """Return the error for a name that is not in the suites.

    Args:
        name: as written by the user.
    """
    return PlanError(f"{name[:40]!r} is no model of the suites; there are gpt A to I, moe A to I, and llama.")


def suite_layers(name: str, *, batch: int, layers: int) -> list[LayerGraph]:
    """Returns the layers of a model of the suites, from the first; a mixture alternates experts and dense layers.

    Args:
        name: such as "gpt F", "moe E" or "llama".
        batch: sequences.
        layers: how many.

    Raises:
        PlanError: unknown name, or a number out of range.
    """
    for what, value in (("batch", batch), ("layers", layers)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            raise PlanError(f"{what} {str(value)[:40]!r} is no whole number from 1 to {MOST:,}.")
    family, letter = split_name(name)
    if family == "llama" and not letter:
        seq, hidden, _, heads, _ = LLAMA
        return [_build_layer("llama", seq, hidden, heads, batch, LLAMA_FFN)] * layers
    if family == "gpt" and letter in GPT:
        seq, hidden, _, heads, _ = GPT[letter]
        return [_build_layer("dense", seq, hidden, heads, batch, 4 * hidden)] * layers
    if family == "moe" and letter in MOE:
        seq, hidden, _, heads, _, experts, group = MOE[letter]
        if batch * seq % group:
            raise PlanError(f"{batch} sequences of {seq} tokens are no whole groups of {group}; change the batch.")
        groups, places = batch * seq // group, 2 * group // experts
        sizes = {"g": groups, "t": group, "e": experts, "c": places}
        kinds = (
            _build_layer("experts", seq, hidden, heads, batch, 4 * hidden, sizes),
            _build_layer("dense", seq, hidden, heads, batch, 4 * hidden),
        )
        return [kinds[at % 2] for at in range(layers)]
    raise unknown_model(name)


@dataclass(frozen=True)
class SuiteModels:
    """Models of the suites for the planner, in 32 bits and without sequence parallelism, as CFP and Alpa ran them."""

    element_bytes: float = 4.0
    keeps_scores: bool = True
    is_sequence_parallel: bool = False

    def has(self, name: str) -> bool:
        """Return whether a name is meant for a model of the suites."""
        return is_suite(name)

    def depth(self, name: str) -> int:
        """Return the number of layers of a model. Raises `PlanError` for an unknown one."""
        return suite_depth(name)

    def layers(self, name: str, *, batch: int, layers: int) -> list[LayerGraph]:
        """Return the layers of a model. Raises `PlanError` as `suite_layers` does."""
        return suite_layers(name, batch=batch, layers=layers)


def _build_layer(
    name: str, seq: int, hidden: int, heads: int, batch: int, ffn: int, experts: dict[str, int] | None = None
) -> LayerGraph:
    sizes = {"b": batch, "s": seq, "z": seq, "h": hidden, "a": heads, "d": hidden // heads, "x": 3, "f": ffn}
    ahead, lying = attention(separate=name == "llama")
    rest, behind = _grouped_experts() if experts else gated_mlp() if name == "llama" else mlp()
    contractions = (*ahead, *rest)
    sizes |= experts or {}
    return LayerGraph(name, contractions, (*lying, *behind), sizes, "out", reading(contractions))


def _grouped_experts() -> tuple[tuple[Contraction, ...], tuple[Between, ...]]:
    """Returns the contractions of a mixture of experts as GShard computes it, with masks over places, and the
    operations between them.

    Tokens are cut into groups, each of which has `c` places in every expert (Lepikhin et al., ICLR 2021). In the
    second product of an expert the weight is the left operand, as CFP's published plan has it.
    """
    tokens = ("g", "t")
    places = ("g", "c")
    x = Operand("x", (tokens, _HIDDEN))
    # Dispatch and combine are products with masks over e x c places.
    grouped = Operand("x", (("g",), ("t",), _HIDDEN))
    mask = Operand("mask", (("g",), ("t",), ("e",), ("c",)))
    sent = Operand("sent", (("g",), ("e",), ("c",), _HIDDEN))
    experts_in = Operand("expert_in", (("e",), places, _HIDDEN))
    inside = Operand("expert_inside", (("e",), places, ("f",)))
    experts_out = Operand("expert_out", (("e",), _HIDDEN, places))
    returned = Operand("returned", (("g",), ("e",), ("c",), _HIDDEN))
    return (
        Contraction("gate", x, Operand("w_gate", (_HIDDEN, ("e",)), weight=True), Operand("logits", (tokens, ("e",)))),
        Contraction("dispatch", mask, grouped, sent),
        Contraction("up", experts_in, Operand("w_up", (("e",), _HIDDEN, ("f",)), weight=True), inside),
        Contraction("down", Operand("w_down", (("e",), ("f",), _HIDDEN), weight=True), inside, experts_out),
        Contraction("combine", mask, returned, Operand("moe_out", (("g",), ("t",), _HIDDEN))),
    ), (
        Between("gate", "softmax and top two over experts, places by a scan over tokens", ("e", "t"), ("mask",)),
        Between("dispatch", "transpose to experts"),
        Between("up", "activation"),
        Between("down", "transpose to groups"),
        Between("combine", "residual, norm", ("h",)),
    )
