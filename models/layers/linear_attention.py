"""Linear attention: a state per head in place of cached keys, updated by a delta rule or a decay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from models.layers.contract import (
    ContextExchange,
    Count,
    KeptBytes,
    LaunchWords,
    LayerKind,
    MixingWork,
    Product,
    SequenceState,
)
from models.layers.mixing_terms import BF16, DELTA_CHUNK, FP32, convolution_bytes, decode_state

__all__ = ["GatedDeltaNetLayer", "KimiDeltaLayer", "LightningLayer"]

LIGHTNING_CHUNK = 256
"""Tokens C of a chunk of lightning attention. Source: block size of MiniMax-01's published module."""

_DELTA_ARGUMENTS: Final = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_head_dim": "linear_key_head_dim",
    "value_head_dim": "linear_value_head_dim",
    "kernel": "linear_conv_kernel_dim",
}
"""Megatron-LM's arguments by field. Source: transformer_config.py, d98e8a64."""


def _delta_flops(heads: int, key_dim: int, value_dim: int) -> float:
    """Return the matrix operations of a delta rule per token, by chunks of C tokens [FLOP].

    Yang et al. 2024 (arXiv:2406.06484), section 3: k k', its inverse times k and v (W and U), q k', and products with
    values within the chunk, 2 C columns each; W, k and q with the state, 2 dk dv each.
    """
    return heads * (2.0 * DELTA_CHUNK * (3 * key_dim + 2 * value_dim) + 6.0 * key_dim * value_dim)


class GatedDeltaNetLayer(LayerKind):
    """Gated delta net (Yang et al. 2024, arXiv:2412.06464): Hk key heads of dk, Hv value heads of dv, a convolution."""

    kind: Literal["gated_deltanet"] = "gated_deltanet"
    key_heads: Count
    value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    kernel: Count
    """Taps of the convolution over queries, keys and values."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.value_heads % self.key_heads:
            raise PydanticCustomError(
                "refused",
                "has {keys} key heads for {values} value heads; key_heads must divide value_heads",
                {"keys": self.key_heads, "values": self.value_heads},
            )
        return self

    @property
    def is_scan(self) -> bool:
        """True: tokens are mixed through states."""
        return True

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "gated_deltanet"

    @property
    def convolved(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.key_heads * self.key_head_dim + self.value_heads * self.value_head_dim

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "gated delta net"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: queries, keys, values with their gate, decay and strength, output."""
        values = self.value_heads * self.value_head_dim
        return (
            Product("input", self.convolved + values + 2 * self.value_heads, hidden),
            Product("output", hidden, values, split="inputs"),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolution, of decays and their biases, and of the norm of a value head."""
        return self.convolved * self.kernel + 2 * self.value_heads + self.value_head_dim

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution, and a dk x dv state per value head."""
        recurrent = self.value_heads * self.key_head_dim * self.value_head_dim
        return SequenceState(per_sequence={"conv": (self.kernel - 1) * self.convolved, "recurrent": recurrent})

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the convolution, norms of queries and keys, the delta rule by chunks, and the gated norm; the same for
        any length."""
        keys, values = self.key_heads * self.key_head_dim, self.value_heads * self.value_head_dim
        wide = self.value_heads * self.key_head_dim  # keys, repeated for each value head
        states = wide * self.value_head_dim / DELTA_CHUNK
        # Kernels of `chunk_gated_delta_rule` (fla 0.6.0), each with its reads and writes, counted, not measured:
        scanned: float = BF16 * (keys + DELTA_CHUNK * self.value_heads)  # k k' and its inverse A
        scanned += BF16 * (keys + values + DELTA_CHUNK * self.value_heads + wide + values)  # k, v and A to W and U
        scanned += BF16 * (keys + wide + values + states + values)  # k, W and U to states and new values
        scanned += BF16 * (2 * keys + values + states + values)  # q, k, new values and states to the output
        # Decay and strength: two numbers per head to 32 bits, and the summed decay.
        steps = self.value_heads * (2 * BF16 + 2 * FP32 + 2 * FP32)
        moved = convolution_bytes(self.convolved) + 2.0 * BF16 * 2 * keys + scanned + steps
        moved += 3 * BF16 * values  # reads output and gate, writes their normalised product
        matrix = _delta_flops(self.value_heads, self.key_head_dim, self.value_head_dim)
        # Convolution, decay, strength, two norms, sum of decays, four kernels of the rule, gated norm.
        return MixingWork(matrix=matrix, moved=moved, kernels=11)

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return one step of the delta rule: states are updated and read at any length of context."""
        states = self.value_heads * self.key_head_dim * self.value_head_dim
        # k S, a rank-one update, q S.
        moved = decode_state((self.kernel - 1) * self.convolved, states)
        moved += 3.0 * BF16 * self.value_heads * self.value_head_dim
        return MixingWork(matrix=6.0 * states, moved=moved, kernels=3)

    def kept(self, hidden: int) -> KeptBytes:
        """Return the activations that Megatron-LM keeps, which repeats queries and keys for each value head and copies
        values and gates; fla alone keeps 4 (Hv - Hk) dk + 4 Hv dv bytes less. Measured on d98e8a64."""
        values = self.value_heads * self.value_head_dim
        split = BF16 * (self.convolved + values + 2 * self.value_heads)  # output of the first product
        split += BF16 * self.convolved  # output of the convolution
        split += 2 * BF16 * self.value_heads * self.key_head_dim + 2 * BF16 * values  # normalised q and k; v and z
        split += 2 * FP32 * self.value_heads + BF16 * DELTA_CHUNK * self.value_heads  # decay, strength; A
        return KeptBytes(split + 2 * BF16 * values)  # outputs of the rule and of the norm

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return an all-to-all from tokens to heads before the convolution, and back after the rule (Megatron-LM)."""
        values = self.value_heads * self.value_head_dim
        return ContextExchange(per_token=BF16 * (self.convolved + values + 2 * self.value_heads) + BF16 * values)

    def tensor_divisors(self) -> dict[str, int]:
        """Return key and value heads."""
        return {"delta-net key heads": self.key_heads, "delta-net value heads": self.value_heads}

    def context_divisors(self) -> dict[str, int]:
        """Return key and value heads, which an all-to-all divides among ranks."""
        return self.tensor_divisors()

    def launch_words(self, framework: str, hidden: int) -> LaunchWords:
        """Return "G" of Megatron-LM's patterns; torchtitan and MaxText have the layer in models of theirs."""
        if framework == "megatron":
            return LaunchWords("G", {words: getattr(self, name) for name, words in _DELTA_ARGUMENTS.items()})
        return LaunchWords()

    @classmethod
    def from_launch_words(cls, framework: str, letter: str, arguments: Mapping[str, Any], hidden: int) -> Self | None:
        """Return the layer of "G" of Megatron-LM's patterns."""
        return cls(**{name: arguments[words] for name, words in _DELTA_ARGUMENTS.items()}) if letter == "G" else None


class KimiDeltaLayer(LayerKind):
    """Kimi delta attention (Kimi Linear, arXiv:2510.26692): H heads of d, a decay per channel, an output gate."""

    kind: Literal["kda"] = "kda"
    heads: Count
    head_dim: Count
    kernel: Count
    """Taps of the convolutions over queries, keys and values."""
    full_rank_gate: bool = False
    """True if the output gate is one matrix; else it goes through d elements."""
    full_rank_decay: bool = False
    """True if the decay is one matrix (Ling 3); else it goes through d elements."""

    @property
    def is_scan(self) -> bool:
        """True: tokens are mixed through states."""
        return True

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "kda"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "Kimi delta attention"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: queries, keys, values, strength, decay, gate, output."""
        width, dim = self.heads * self.head_dim, self.head_dim
        gate = (
            [Product("gate", width, hidden)]
            if self.full_rank_gate
            else [Product("gate_down", dim, hidden, split="none"), Product("gate_up", width, dim)]
        )
        decay = (
            [Product("decay", width, hidden)]
            if self.full_rank_decay
            else [Product("decay_down", dim, hidden, split="none"), Product("decay_up", width, dim)]
        )
        return (
            Product("input", 3 * width + self.heads, hidden),
            *decay,
            *gate,
            Product("output", hidden, width, split="inputs"),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolutions, of decays, their biases, and of the norm of a head."""
        width = self.heads * self.head_dim
        return 3 * width * self.kernel + self.heads + width + self.head_dim

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolutions, and a d x d state per head."""
        width = self.heads * self.head_dim
        return SequenceState(per_sequence={"conv": (self.kernel - 1) * 3 * width, "recurrent": width * self.head_dim})

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the convolutions, norms of queries and keys, the delta rule by chunks, and the gated norm; the same
        for any length."""
        width = self.heads * self.head_dim
        states, chunk = width * self.head_dim / DELTA_CHUNK, DELTA_CHUNK * self.heads
        # Kernels of `chunk_kda` (fla 0.6.0), each with its reads and writes, counted, not measured; decays in 32 bits:
        scanned: float = BF16 * width + FP32 * width  # decays from their product, summed
        scanned += 2 * BF16 * width + FP32 * width + 2 * BF16 * chunk  # q, k and decays to q k' and the inverse of k k'
        scanned += BF16 * (2 * width + chunk + 3 * width) + FP32 * width  # k, v, decays and inverse to W, U, decayed k
        scanned += BF16 * (3 * width + states + width)  # these to states and new values
        scanned += BF16 * (2 * width + chunk + states + width) + FP32 * width  # q, new values, states to the output
        moved = convolution_bytes(3 * width) + 2.0 * BF16 * 2 * width + scanned + self.heads * (BF16 + FP32)
        moved += 3 * BF16 * width  # reads output and gate, writes their normalised product
        matrix = _delta_flops(self.heads, self.head_dim, self.head_dim)
        # Three convolutions, strength, two norms, five kernels of the rule, gated norm.
        return MixingWork(matrix=matrix, moved=moved, kernels=12)

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return one step of the delta rule: states are updated and read at any length of context."""
        width = self.heads * self.head_dim
        moved = decode_state((self.kernel - 1) * 3 * width, width * self.head_dim) + 3.0 * BF16 * width
        return MixingWork(matrix=6.0 * width * self.head_dim, moved=moved, kernels=5)

    def kept(self, hidden: int) -> KeptBytes:
        """Return what `chunk_kda` and the products around it keep; decays are summed again from their product.

        Source: fla 0.6.0, without `disable_recompute`.
        """
        width = self.heads * self.head_dim
        split = (
            BF16 * (3 * width + self.heads) + 2 * BF16 * width
        )  # outputs of products: q, k, v, strength; decay, gate
        split += BF16 * 3 * width + 2 * BF16 * width  # outputs of convolutions; normalised q and k
        split += FP32 * self.heads + 2 * BF16 * DELTA_CHUNK * self.heads  # strength; q k' and the inverse of k k'
        split += 2 * BF16 * width  # outputs of the rule and of the norm
        ranks = 1 if self.full_rank_gate else 2
        return KeptBytes(split, ranks * BF16 * self.head_dim)  # inputs of decay_up and gate_up

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return a state and a transition per head in 32 bits, and convolution columns, gathered by all ranks (fla)."""
        width = self.heads * self.head_dim
        return ContextExchange(per_sequence=FP32 * 2 * width * self.head_dim + BF16 * (self.kernel - 1) * 3 * width)

    def tensor_divisors(self) -> dict[str, int]:
        """Return the heads."""
        return {"Kimi delta attention heads": self.heads}


class LightningLayer(LayerKind):
    """Lightning attention (MiniMax-01, arXiv:2501.08313): H heads of d, a fixed decay per head, a gated output."""

    kind: Literal["lightning"] = "lightning"
    heads: Count
    head_dim: Count

    @property
    def is_scan(self) -> bool:
        """True: tokens are mixed through states."""
        return True

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "lightning"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "lightning attention"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: queries, keys, values, gate, output."""
        width = self.heads * self.head_dim
        return (
            Product("qkv", 3 * width, hidden),
            Product("gate", width, hidden),
            Product("output", hidden, width, split="inputs"),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the norm of the output."""
        return self.heads * self.head_dim

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return a d x d state per head."""
        return SequenceState(per_sequence={"recurrent": self.heads * self.head_dim**2})

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return activations, products within chunks of C tokens and with the state, and the gated norm; the same for
        any length."""
        width = self.heads * self.head_dim
        # Qin et al. 2024 (arXiv:2401.04658): q k' and its product with v, 2 C each; k' v and q with the state.
        matrix = self.heads * (4.0 * LIGHTNING_CHUNK * self.head_dim + 4.0 * self.head_dim**2)
        # Two kernels (`chunk_simple_gla`, fla 0.6.0), counted, not measured: k and v to states; q, k, v and states to
        # the output. SiLU of q, k and v reads and writes them; the gated norm reads two and writes one.
        states = 2 * BF16 * width * self.head_dim / LIGHTNING_CHUNK
        moved = BF16 * (2 + 4) * width + states + BF16 * 6 * width + BF16 * 3.0 * width
        return MixingWork(matrix=matrix, moved=moved, kernels=4)

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return one step of the recurrence: states are updated and read at any length of context."""
        width = self.heads * self.head_dim
        moved = decode_state(0, width * self.head_dim) + BF16 * 9.0 * width
        return MixingWork(matrix=4.0 * width * self.head_dim, moved=moved, kernels=3)

    def kept(self, hidden: int) -> KeptBytes:
        """Return queries, keys and values before and after SiLU, output, gate, and their product; counted."""
        return KeptBytes(BF16 * (6 + 3) * self.heads * self.head_dim)

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return a state per head in 32 bits, which each rank hands to the next."""
        return ContextExchange(per_sequence=FP32 * self.heads * self.head_dim**2)

    def tensor_divisors(self) -> dict[str, int]:
        """Return the heads."""
        return {"lightning attention heads": self.heads}
