"""State spaces: Mamba-1 (Gu and Dao 2023, arXiv:2312.00752) and Mamba-2 (Dao and Gu 2024, arXiv:2405.21060)."""

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
    Width,
)
from models.layers.mixing_terms import BF16, FP32, convolution_bytes, decode_state

__all__ = ["Mamba1Layer", "Mamba2Layer"]

SAVED_EVERY = 2_048
"""Tokens between saved states of Mamba-1's scan. Source: `selective_scan.cpp` of mamba-ssm 2.3.2."""

MEGATRON_KERNEL: Final = 4
"""Taps of the convolution, which Megatron-LM has no argument for. Source: mamba_mixer.py, d98e8a64."""
MEGATRON_CHUNK: Final = 128
"""Tokens of a chunk, which Megatron-LM has no argument for. Source: mamba_mixer.py, d98e8a64."""


class Mamba2Layer(LayerKind):
    """H heads of P elements with N states each; inputs and outputs of the states shared by G groups of heads."""

    kind: Literal["mamba2"] = "mamba2"
    heads: Count
    head_dim: Count
    states: Count
    groups: Count
    kernel: Count
    """Taps of the convolution."""
    normed: bool = True
    """False if the gated output has no norm (Falcon-H1)."""
    chunk: Count = 256
    """Tokens C of a chunk of the scan: 256 in Bamba, Falcon-H1 and Granite 4, 128 in Nemotron-H and Megatron-LM."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.groups:
            raise PydanticCustomError(
                "refused",
                "has {groups} groups for {heads} Mamba-2 heads; groups must divide heads",
                {"groups": self.groups, "heads": self.heads},
            )
        return self

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "mamba2"

    @property
    def is_scan(self) -> bool:
        """True: tokens are mixed through states."""
        return True

    @property
    def inner(self) -> int:
        """Width of all heads [elements]."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: heads, and inputs and outputs of the states."""
        return self.inner + 2 * self.groups * self.states

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "Mamba-2"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: gate, heads, states and steps in one, and the output."""
        return (
            Product("input", self.inner + self.convolved + self.heads, hidden),
            Product("output", hidden, self.inner, split="inputs"),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolution with its bias, of decay, step bias and skip, and of the norm."""
        return self.convolved * (self.kernel + 1) + 3 * self.heads + (self.inner if self.normed else 0)

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution, and P x N states per head."""
        return SequenceState(
            per_sequence={"conv": (self.kernel - 1) * self.convolved, "recurrent": self.inner * self.states}
        )

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the convolution, the scan by chunks of C tokens, and the gated norm; the same for any length."""
        states = self.inner * self.states
        # Dao and Gu 2024, section 6: C B' of a chunk once per group; its product with inputs; states in and out.
        chunk = 2.0 * self.chunk * (self.groups * self.states + self.inner)
        # Five kernels of mamba-ssm 2.3.2 (`_mamba_chunk_scan_combined_fwd`), counted, not measured:
        # inputs twice, output, B and C twice each; steps and summed decays in 32 bits, written once, read twice;
        scanned = BF16 * (3 * self.inner + 4 * self.groups * self.states)
        steps = self.heads * (BF16 + 2 * 3 * FP32)
        # C B' of a chunk in 32 bits, written and read; states in 32 bits to and from the passing kernel, 16 after it.
        passed = 2.0 * FP32 * self.groups * self.chunk + (2 * FP32 + 2 * BF16) * states / self.chunk
        # Reads output and gate, writes their (normalised) product.
        moved = convolution_bytes(self.convolved) + scanned + steps + passed + 3 * BF16 * self.inner
        return MixingWork(matrix=chunk + 4.0 * states, moved=moved, kernels=7)

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return one step of the recurrence: states are updated and read at any length of context."""
        states = self.inner * self.states
        moved = decode_state((self.kernel - 1) * self.convolved, states) + 3.0 * BF16 * self.inner
        return MixingWork(matrix=4.0 * states, moved=moved, kernels=3)

    def kept(self, hidden: int) -> KeptBytes:
        """Return what the memory-efficient path keeps: output of the first product, of the scan, and of the norm.

        Source: `MambaSplitConv1dScanCombinedFn` of mamba-ssm 2.3.2, which makes convolution and steps again.
        """
        return KeptBytes(BF16 * (self.inner + self.convolved + self.heads) + 2 * BF16 * self.inner)

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return an all-to-all from tokens to heads before the convolution, and back after the scan (Megatron-LM)."""
        return ContextExchange(per_token=BF16 * (self.inner + self.convolved + self.heads) + BF16 * self.inner)

    def tensor_divisors(self) -> dict[str, int]:
        """Return heads and groups, which Megatron-LM divides among ranks."""
        return {"Mamba-2 heads": self.heads, "Mamba-2 groups": self.groups}

    def repeated_sizes(self) -> frozenset[str]:
        """Return the groups, of which vLLM gives each rank one at least (`MambaMixer2`)."""
        return frozenset({"Mamba-2 groups"})

    def context_divisors(self) -> dict[str, int]:
        """Return heads; groups are repeated where there are fewer than ranks."""
        return {"Mamba-2 heads": self.heads}

    def launch_words(self, framework: str, hidden: int) -> LaunchWords:
        """Return "M" of Megatron-LM's patterns."""
        if framework != "megatron":
            return super().launch_words(framework, hidden)
        if self.kernel != MEGATRON_KERNEL:
            return LaunchWords(
                refusal=f"its Mamba-2 has a convolution of {MEGATRON_KERNEL} taps; the model has kernel {self.kernel}"
            )
        if not self.normed:
            return LaunchWords(refusal="its Mamba-2 has a norm before the output; the model has normed false")
        told = f"Mamba-2 scans in chunks of {MEGATRON_CHUNK} tokens there, not {self.chunk}"
        return LaunchWords(
            "M",
            {
                "mamba_num_heads": self.heads,
                "mamba_head_dim": self.head_dim,
                "mamba_state_dim": self.states,
                "mamba_num_groups": self.groups,
            },
            (told,) if self.chunk != MEGATRON_CHUNK else (),
        )

    @classmethod
    def from_launch_words(cls, framework: str, letter: str, arguments: Mapping[str, Any], hidden: int) -> Self | None:
        """Return the layer of "M" of Megatron-LM's patterns; twice the hidden width without a number of heads."""
        if letter != "M":
            return None
        head_dim = arguments["mamba_head_dim"]
        return cls(
            heads=arguments.get("mamba_num_heads") or 2 * hidden // head_dim,
            head_dim=head_dim,
            states=arguments["mamba_state_dim"],
            groups=arguments["mamba_num_groups"],
            kernel=MEGATRON_KERNEL,
            chunk=MEGATRON_CHUNK,
        )


class Mamba1Layer(LayerKind):
    """Di channels with N states each; steps through a rank of R elements."""

    kind: Literal["mamba1"] = "mamba1"
    inner: Width
    """Channels [elements]."""
    states: Count
    step_rank: Count
    kernel: Count
    """Taps of the convolution."""
    normed: bool = False
    """True if steps, inputs and outputs of the states are normalised (Jamba)."""

    @property
    def is_scan(self) -> bool:
        """True: tokens are mixed through states."""
        return True

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "mamba1"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "Mamba-1"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: channels and gate, states and steps, output."""
        return (
            Product("input", 2 * self.inner, hidden),
            Product("states", self.step_rank + 2 * self.states, self.inner, split="inputs"),
            Product("steps", self.inner, self.step_rank),
            Product("output", hidden, self.inner, split="inputs"),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolution with its bias, of the step bias, decays, skip, and norms."""
        norms = self.step_rank + 2 * self.states if self.normed else 0
        return self.inner * (self.kernel + 1) + self.inner + self.inner * (self.states + 1) + norms

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution, and N states per channel."""
        return SequenceState(
            per_sequence={"conv": (self.kernel - 1) * self.inner, "recurrent": self.inner * self.states}
        )

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the convolution and the scan, element by element; the same for any length."""
        # Gu and Dao 2023, equations 1 and 2: exponential, two products and a sum per state, input and output: about 9
        # operations on vector units per channel and state, counted, not measured.
        vector = 9.0 * self.inner * self.states
        moved = convolution_bytes(self.inner)
        # `selective_scan_fwd` of mamba-ssm 2.3.2: reads inputs, steps, gate, B and C, writes the output, and states in
        # 32 bits every 2,048 tokens, twice (product of decays, state).
        moved += BF16 * (4 * self.inner + 2 * self.states) + 2 * FP32 * self.inner * self.states / SAVED_EVERY
        if self.normed:  # read and write
            moved += 2.0 * BF16 * (self.step_rank + 2 * self.states)
        return MixingWork(vector=vector, moved=moved, kernels=2 + (3 if self.normed else 0))

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return one step of the recurrence: states are updated and read at any length of context."""
        moved = decode_state((self.kernel - 1) * self.inner, self.inner * self.states) + 4.0 * BF16 * self.inner
        kernels = 2 + (3 if self.normed else 0)
        return MixingWork(vector=9.0 * self.inner * self.states, moved=moved, kernels=kernels)

    def kept(self, hidden: int) -> KeptBytes:
        """Return channels, gate and output, and steps with inputs and outputs of the states.

        Source: `MambaInnerFn` of mamba-ssm 2.3.2 with `checkpoint_lvl` 1, which makes convolution and steps again.
        """
        return KeptBytes(3 * BF16 * self.inner, BF16 * (self.step_rank + 2 * self.states))

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return the states and convolution columns that a rank hands to the next; derived: no framework does it."""
        return ContextExchange(per_sequence=FP32 * self.inner * self.states + BF16 * (self.kernel - 1) * self.inner)

    def reduced(self, hidden: int) -> float:
        """Return steps and inputs and outputs of the states, partial sums over the channels of each rank [bytes]."""
        return float(BF16 * (self.step_rank + 2 * self.states))

    def tensor_divisors(self) -> dict[str, int]:
        """Return the channels."""
        return {"Mamba-1 channels": self.inner}
