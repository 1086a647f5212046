"""Matrix arithmetic per token, and a processor's throughput of it.

Two conventions count attention, and published figures use both:

- "full": every token is multiplied with every token that the layer's window holds, 12 L h s FLOP per token in training
  (L layers, h = heads * head size, s tokens). Narayanan et al. (SC21, arXiv:2104.04473, section 5.1), PaLM
  (arXiv:2204.02311, appendix B). This is the one that all figures use unless they say otherwise.
- "causal": masked products are left out, 6 L h s: half of it where the layer sees everything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from models import Architecture, BlockShape, Model
from models.parameters import attention_weights, expert_weights, indexer_weights, mlp_weights, parameters

__all__ = [
    "BLOCK_FORMULA",
    "CONVENTIONS",
    "PUBLISHED_FORMULA",
    "Convention",
    "Recipe",
    "Recompute",
    "TokenFlops",
    "architecture_flops",
    "block_flops",
    "parameter_count",
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

    def forward(self, convention: Convention = "full") -> float:
        """Returns the work of the forward pass of one token [FLOP]."""
        return self.weights + self.head + (self.attention if convention == "full" else self.causal_attention)

    def model(self, convention: Convention = "full", training: bool = True) -> float:
        """Returns the model's operations per token [FLOP]: forward once and, in training, backward at twice that.

        Recomputed arithmetic does not count. Source: PaLM (arXiv:2204.02311), appendix B.
        """
        return (3.0 if training else 1.0) * self.forward(convention)

    def hardware(self, recompute: Recompute, convention: Convention = "full") -> float:
        """Returns the work of the processors per token in training [FLOP]: `model`, plus recomputation.

        "full" runs the blocks forward a second time, "attn_only" the products inside attention (Korthikanti et al.,
        arXiv:2205.05198, appendix A); the LM head is never run again. What a fused attention kernel repeats within its
        backward pass does not count.
        """
        inner = self.attention if convention == "full" else self.causal_attention
        again = {"none": 0.0, "attn_only": inner, "full": self.weights + inner}[recompute]
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
    return architecture_flops(model.architecture_or_assumed(), model.seq_size)


def parameter_count(model: Model) -> int:
    """Returns all weights of a model, every expert included; with an assumed embedding where none is recorded.

    See `models.Model.architecture_or_assumed`.

    Args:
        model: one that was read or made.
    """
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


def architecture_flops(architecture: Architecture, seq_size: int) -> TokenFlops:
    """Returns the matrix arithmetic of one token of a published architecture in a sequence of `seq_size` tokens.

    Two per weight of every matrix that the token passes (Kaplan et al., arXiv:2001.08361, section 2.1), without the
    lookup in the embedding; with the LM head, the router and the experts that it visits. A layer for multi-token
    prediction that is trained adds a block like the last, its projection and the head. Attention: two per element of
    query and key and of weight and value, for each of the tokens that the layer's window holds; with an indexer
    (DeepSeek-V3.2), for the tokens that it picks, plus its own scores over all of them.

    Args:
        architecture: the published one.
        seq_size: of the sequence [tokens].
    """
    mixtures = sum(architecture.expert_layers)
    matrices = (
        architecture.layers * attention_weights(architecture)
        + architecture.indexer_layers * indexer_weights(architecture)
        + (architecture.layers - mixtures) * mlp_weights(architecture)
        + mixtures * expert_weights(architecture, active=True)
    )
    # FLOP of one token with one other: a d_k for the score, a d_v for the value.
    pair = 2.0 * architecture.heads * (architecture.head_dim + architecture.value_head_dim)
    full = causal = 0.0
    for window, layers in Counter(architecture.windows).items():
        seen = _attended_tokens(architecture, window, seq_size)
        full += layers * pair * seen[0]
        causal += layers * pair * seen[1]
    index = architecture.sparse_attention
    if index is not None:
        # The indexer scores every token, of which attention then takes top_k (DeepSeek-V3.2).
        scores = 2.0 * architecture.indexer_layers * index.heads * index.head_dim * seq_size
        full, causal = full + scores, causal + scores / 2
    head, again = 2.0 * architecture.hidden * architecture.vocab, architecture.trained_prediction_layers
    if again:
        experts = architecture.expert_layers[-1]
        fed = expert_weights(architecture, active=True) if experts else mlp_weights(architecture)
        own = indexer_weights(architecture) if architecture.indexer_layers == architecture.layers else 0
        matrices += again * (attention_weights(architecture) + own + fed + 2 * architecture.hidden**2)
        seen = _attended_tokens(architecture, architecture.windows[-1], seq_size)
        full, causal = full + again * pair * seen[0], causal + again * pair * seen[1]
        head *= 1 + again
    return TokenFlops(2.0 * matrices, full, causal, head)


def _attended_tokens(architecture: Architecture, window: int | None, length: int) -> tuple[float, float]:
    """Tokens that a token is multiplied with in a layer, on average: (in full, without the masked ones).

    A causal window of w in a sequence of s holds w - w^2 / 2s on average: half of s where it holds everything.
    """
    chosen = architecture.sparse_attention
    if chosen is not None:
        window = min(chosen.top_k, length if window is None else window)
    if window is None or window >= length:
        return float(length), length / 2
    if architecture.window_kind == "chunked" and chosen is None:
        chunks, rest = divmod(length, window)
        squares = (chunks * window**2 + rest**2) / length
        return squares, squares / 2
    return float(window), window - window**2 / (2 * length)
