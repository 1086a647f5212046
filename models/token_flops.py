"""Matrix arithmetic per token, and a processor's throughput of it.

Two conventions count attention, and published figures use both:

- "full": every token is multiplied with every token that the layer's window holds, 12 L h s FLOP per token in training
  (L layers, h = heads * head size, s tokens). Narayanan et al. (SC21, arXiv:2104.04473, section 5.1), PaLM
  (arXiv:2204.02311, appendix B).
- "causal": masked products are left out, 6 L h s: half of it where the layer sees everything. Megatron's log counts so
  (`num_floating_point_operations` in megatron/training/training.py halves the core attention).

A scenario says which one its figures use; see `engine.scenarios.scenario.Scenario.flop_convention`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from models import Architecture, BlockShape, LayerPattern, Model
from models.layers import Block, pattern_counts
from models.parameters import parameters
from models.patterns import pattern_of

__all__ = [
    "BLOCK_FORMULA",
    "CAUSAL_TERM",
    "CONVENTIONS",
    "PUBLISHED_FORMULA",
    "Convention",
    "Recipe",
    "Recompute",
    "TokenFlops",
    "architecture_flops",
    "block_flops",
    "parameter_count",
    "pattern_flops",
    "token_flops",
]

Convention = Literal["full", "causal"]
Recompute = Literal["none", "attn_only", "full"]
Recipe = Literal["published", "block"]

CONVENTIONS: Final[dict[Convention, str]] = {
    "full": "attention in full (12 L h s per token)",
    "causal": "attention without what the causal mask discards (6 L h s per token)",
}

BLOCK_FORMULA: Final = (
    "3 · blocks · sequence · (8 · hidden · heads · head size + 4 · hidden · feedforward + "
    "4 · sequence · heads · head size)"
)
"""`block_flops` of one sample, for people. With heads · head size = hidden and feedforward = 4 · hidden this is
72 · blocks · sequence · hidden² · (1 + sequence / (6 · hidden)): Narayanan et al. (arXiv:2104.04473), section 5.1,
without its recompute and vocabulary terms."""

PUBLISHED_FORMULA: Final = (
    "3 · sequence · (2 · matrix weights a token passes in the blocks + 2 · hidden · vocabulary + "
    "2 · layers · heads · (key size + value size) · tokens in the layer's window)"
)
"""Explanation of `architecture_flops` of one sample for people: only the experts that a token visits, with the LM
head."""


CAUSAL_TERM: Final = "attention counts only pairs of tokens that the mask lets through, about half of them"
"""Difference of the causal convention from `BLOCK_FORMULA` and `PUBLISHED_FORMULA`, for people."""


@dataclass(frozen=True, slots=True)
class TokenFlops:
    """Matrix arithmetic of one token's forward pass [FLOP], a multiplication and an addition counting two."""

    weights: float
    """Products with the weights of the blocks, including only the experts that the token visits."""
    attention: float
    """Products of queries with keys and of their weights with values, in full."""
    causal_attention: float
    """The same without products that the causal mask discards."""
    head: float
    """The LM head; 0 where the cost model has none."""
    scan: float = 0.0
    """Scans of linear attention and state spaces, by chunks: the same in full and without masked products."""
    is_frozen: bool = False
    """True if the weights have no gradients; the arithmetic of adapters is not counted."""

    def forward(self, convention: Convention = "full") -> float:
        """Returns the work of the forward pass of one token [FLOP]."""
        attention = self.attention if convention == "full" else self.causal_attention
        return self.weights + self.head + attention + self.scan

    def model(self, convention: Convention = "full", training: bool = True) -> float:
        """Returns the model's operations per token [FLOP]: forward once and, in training, backward at twice that, or
        once for the products with frozen weights.

        Recomputed arithmetic does not count. Source: PaLM (arXiv:2204.02311), appendix B.
        """
        if training and self.is_frozen:
            return 3.0 * self.forward(convention) - (self.weights + self.head)
        return (3.0 if training else 1.0) * self.forward(convention)

    def hardware(self, recompute: Recompute, convention: Convention = "full") -> float:
        """Returns the work of the processors per token in training [FLOP]: `model`, plus recomputation.

        "full" runs the blocks forward a second time, "attn_only" the products inside attention (Korthikanti et al.,
        arXiv:2205.05198, appendix A); the LM head is never run again, scans only by "full". What a fused kernel repeats
        within its backward pass does not count.
        """
        inner = self.attention if convention == "full" else self.causal_attention
        again = {"none": 0.0, "attn_only": inner, "full": self.weights + inner + self.scan}[recompute]
        return self.model(convention) + again


def token_flops(model: Model, recipe: Recipe = "published") -> TokenFlops:
    """Returns the matrix arithmetic of one token of a model at its `seq_size`.

    Args:
        model: one that was read or made.
        recipe: "published" counts the architecture with LM head and active experts (where it is not recorded, the block
            numbers with a vocabulary of 51,200); "block" counts the six numbers of Calculon's block recipe, which has
            no vocabulary layer.

    Raises `models.ModelFileError` where "block" has no numbers for the architecture.
    """
    if recipe == "block":
        return block_flops(model.require_block())
    if model.layers is not None:
        found = pattern_flops(model.layers, model.seq_size)
    else:
        found = architecture_flops(model.architecture_or_assumed(), model.seq_size)
    if model.tuning is None:
        return found
    # Of packed samples, a token meets those of its own sample only.
    packing = model.packing
    within = packing.square_share / packing.fill
    return replace(
        found,
        attention=found.attention * within,
        causal_attention=found.causal_attention * within,
        is_frozen=model.tuning.is_frozen,
    )


def parameter_count(model: Model) -> int:
    """Returns all weights of a model, every expert included; with an assumed embedding where none is recorded.

    See `models.Model.architecture_or_assumed`.

    Args:
        model: one that was read or made.
    """
    if model.layers is not None:
        return pattern_counts(model.layers).total
    return parameters(model.architecture_or_assumed())


def block_flops(block: BlockShape) -> TokenFlops:
    """Returns the matrix arithmetic of one token by the six numbers of Calculon's block recipe; see `BLOCK_FORMULA`.

    Args:
        block: the six numbers.
    """
    inner = block.attn_heads * block.attn_size
    # Query, key, value and output: 4 h a d weights; two MLP matrices: 2 h F. Two FLOP per weight.
    weights = block.num_blocks * (8.0 * block.hidden * inner + 4.0 * block.hidden * block.feedforward)
    # q k^T and p v: 2 FLOP for s tokens and a d columns each.
    attention = block.num_blocks * 4.0 * block.seq_size * inner
    return TokenFlops(weights, attention, attention / 2, 0.0)


def pattern_flops(pattern: LayerPattern, seq_size: int) -> TokenFlops:
    """Return the matrix arithmetic of one token of a model in a sequence of `seq_size` tokens.

    Two per weight of every matrix that the token passes (Kaplan et al., arXiv:2001.08361, section 2.1), without the
    lookup in the embedding; with the LM head, the router and the experts that it visits. Between products what each
    kind of layer counts: pairs of tokens of attention, chunks of a scan.

    Args:
        pattern: of the blocks.
        seq_size: of the sequence [tokens].
    """
    return _sum_blocks(pattern.counted_blocks(), pattern.hidden, seq_size, head=2.0 * pattern.hidden * pattern.vocab)


def architecture_flops(architecture: Architecture, seq_size: int) -> TokenFlops:
    """Return the matrix arithmetic of one token of a published architecture in a sequence of `seq_size` tokens.

    As `pattern_flops`, with the rows of the vocabulary that are used. A layer for multi-token prediction that is
    trained adds a block like the last, its projection and the head.

    Args:
        architecture: the published one.
        seq_size: of the sequence [tokens].
    """
    pattern, hidden, again = pattern_of(architecture), architecture.hidden, architecture.trained_prediction_layers
    blocks = [*pattern.counted_blocks(), (pattern.blocks[pattern.runs[-1].block], again)]
    found = _sum_blocks(blocks, hidden, seq_size, head=2.0 * hidden * architecture.vocab * (1 + again))
    # Its projection makes one vector of two (DeepSeek-V3, arXiv:2412.19437, section 2.2).
    return replace(found, weights=found.weights + 2.0 * again * 2 * hidden**2)


def _sum_blocks(blocks: Iterable[tuple[Block, int]], hidden: int, seq_size: int, *, head: float) -> TokenFlops:
    full = causal = scan = 0.0
    matrices = 0
    for block, count in blocks:
        matrices += count * sum(each.visited_parameters for layer in block.layers for each in layer.products(hidden))
        for layer in block.mixers:
            whole = count * layer.count_mixing_flops(hidden, seq_size, causal=False)
            if layer.is_scan:
                scan += whole
            else:
                full += whole
                causal += count * layer.count_mixing_flops(hidden, seq_size, causal=True)
    return TokenFlops(2.0 * matrices, float(full), float(causal), head, float(scan))
