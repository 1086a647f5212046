"""Contract of a kind of layer: products, weights, work of mixing, kept activations, messages, and state of a sequence.

A kind says each of them once; cost models, planners, serving and launch writers read them and know no kind by name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from models.documents import Whole

__all__ = [
    "Activation",
    "ContextExchange",
    "Count",
    "KeptBytes",
    "LaunchWords",
    "LayerEntity",
    "LayerKind",
    "MixingWork",
    "Product",
    "Routing",
    "SequenceState",
    "SoftmaxShape",
    "Width",
]

Width = Annotated[int, Whole(1, 2**22)]
Count = Annotated[int, Whole(1, 2**16)]


class LayerEntity(BaseModel):
    """A part of a model's document: immutable, with these keys and no others."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of each token with a matrix of weights."""

    name: str
    outputs: int
    inputs: int
    held: int = 1
    """Equal matrices in memory, such as one per expert."""
    visited: int = 1
    """Matrices of them that one token passes through."""
    split: Literal["outputs", "inputs", "none"] = "outputs"
    """Side of the matrix that tensor parallelism divides; "none" where every rank holds all of it."""
    shared_heads: int = 0
    """Key and value heads among the outputs, of which each rank holds one at least: more ranks repeat them."""
    shared_width: int = 0
    """Outputs of one of these heads [elements]."""
    matrices: int = 1
    """Matrices that the product joins, such as 3 of queries, keys and values: each has an adapter of its own."""
    negligible: bool = False
    """True if no cost model times it, such as the choice of a router: its weights count, its work does not show."""

    def local_outputs(self, tensor_par: Any) -> Any:
        """Return the outputs on one tensor-parallel rank [elements].

        Args:
            tensor_par: degrees, a number or an array [rows].
        """
        if self.split != "outputs":
            return self.outputs
        repeated = np.maximum(self.shared_heads, tensor_par) - self.shared_heads if self.shared_heads else 0
        return (self.outputs + repeated * self.shared_width) / tensor_par

    def local_inputs(self, tensor_par: Any) -> Any:
        """Return the inputs on one tensor-parallel rank [elements].

        Args:
            tensor_par: degrees, a number or an array [rows].
        """
        return self.inputs / tensor_par if self.split == "inputs" else self.inputs

    def local_weights(self, tensor_par: Any) -> Any:
        """Return the weights on one tensor-parallel rank, of one of several equal matrices [elements].

        Args:
            tensor_par: degrees, a number or an array [rows].
        """
        return self.local_outputs(tensor_par) * self.local_inputs(tensor_par)

    @property
    def parameters(self) -> int:
        """Weights in memory."""
        return self.outputs * self.inputs * self.held

    @property
    def visited_parameters(self) -> int:
        """Weights that one token passes through; a token's forward FLOP are twice as many."""
        return self.outputs * self.inputs * self.visited


@dataclass(frozen=True, slots=True)
class SequenceState:
    """Elements that a layer keeps of a sequence while it generates tokens."""

    per_token: Mapping[str, float] = field(default_factory=dict)
    """For each token of the context, without bound [elements by name]."""
    windowed: float = 0
    """For each token inside the window [elements]."""
    window: int = 0
    """Tokens of the window."""
    per_sequence: Mapping[str, int] = field(default_factory=dict)
    """Fixed: convolution columns and recurrent states [elements by name]."""
    kv_heads: int = 0
    """Key and value heads whose entries "kv" and inside the window tensor-parallel ranks divide among them, repeated
    where there are more ranks; 0 where every rank keeps all that grows."""

    def share(self, name: str, tensor_par: Any) -> Any:
        """Return the share of an entry that a tensor-parallel rank keeps [dimensionless].

        Args:
            name: of an entry of `per_token`, or "windowed".
            tensor_par: degrees, a number or an array [rows].
        """
        if not self.kv_heads or name not in ("kv", "windowed"):
            return 1.0
        return np.maximum(self.kv_heads / tensor_par, 1.0) / self.kv_heads

    def count_grown(self, context: Any, tensor_par: Any = 1) -> Any:
        """Return the elements that a rank keeps of a sequence's tokens, without states of fixed size.

        Args:
            context: tokens of the sequence; a number or an array.
            tensor_par: degrees, a number or an array [rows].
        """
        grown = sum(self.share(name, tensor_par) * each for name, each in self.per_token.items()) * context
        return grown + self.share("windowed", tensor_par) * self.windowed * np.minimum(context, self.window)

    def count_elements(self, context: float) -> float:
        """Return the elements that a sequence of some length keeps.

        Args:
            context: tokens of the sequence; a number or an array.
        """
        inside: float = np.minimum(context, self.window)
        return sum(self.per_token.values()) * context + self.windowed * inside + sum(self.per_sequence.values())


@dataclass(frozen=True, slots=True)
class MixingWork:
    """Work of one token between the products of a layer, forward, on all tensor-parallel ranks together."""

    matrix: float = 0.0
    """Operations on matrix units: scores and values of attention, chunks of a scan [FLOP]."""
    vector: float = 0.0
    """Operations on vector units, such as the recurrence of Mamba-1 [FLOP]."""
    moved: float = 0.0
    """Memory traffic of convolutions, gates, norms inside the layer, and of the inputs, outputs and states of a scan
    [bytes]; 0 for a fused attention kernel, which the products around it hide."""
    kernels: int = 0
    """Kernels that run it, without the kernels of products [kernels]."""
    repeated_matrix: float = 0.0
    """Part of `matrix` that every tensor-parallel rank runs in full, such as scores of an indexer [FLOP]: a rank of t
    runs (matrix - repeated_matrix) / t + repeated_matrix."""
    repeated_moved: float = 0.0
    """Part of `moved` that every tensor-parallel rank moves in full [bytes]."""

    def local_matrix(self, tensor_par: Any) -> Any:
        """Return the matrix operations of one tensor-parallel rank [FLOP].

        Args:
            tensor_par: degrees, a number or an array [rows].
        """
        return (self.matrix - self.repeated_matrix) / tensor_par + self.repeated_matrix

    def local_moved(self, tensor_par: Any) -> Any:
        """Return the memory traffic of one tensor-parallel rank [bytes].

        Args:
            tensor_par: degrees, a number or an array [rows].
        """
        return (self.moved - self.repeated_moved) / tensor_par + self.repeated_moved


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """Activations of one token that the backward pass of a layer needs, besides its input and the norm before it, in
    16 bits unless the kind says otherwise [bytes]."""

    split: float = 0.0
    """Bytes that tensor-parallel ranks divide among them."""
    whole: float = 0.0
    """Bytes that every rank keeps."""


@dataclass(frozen=True, slots=True)
class ContextExchange:
    """Messages between context-parallel ranks for a layer, forward; the backward pass sends twice as much."""

    per_token: float = 0.0
    """For each token of a rank, which tensor-parallel ranks divide among them [bytes]: keys and values of a ring, or
    tokens that become heads and back."""
    per_sequence: float = 0.0
    """For each sequence and rank, at any length, which tensor-parallel ranks divide among them [bytes]: states of
    a scan."""
    is_gathered: bool = False
    """True where every rank receives the tokens of all others, in a ring or gathered; False where it sends its own
    away for heads."""
    per_token_whole: float = 0.0
    """For each token of a rank, gathered by all, and the same on all tensor-parallel ranks [bytes]: latents, index
    keys."""
    per_sequence_whole: float = 0.0
    """For each sequence and rank, the same on all tensor-parallel ranks [bytes]: the last window of a shared key."""


@dataclass(frozen=True, slots=True)
class SoftmaxShape:
    """Shape of attention over all tokens, or over those in a window, that fused kernels compute."""

    heads: int
    kv_heads: int
    key_width: int
    """Width of a query or key head [elements]."""
    value_width: int
    window: int | None = None
    """Tokens of a window that moves along; all where None."""
    is_latent: bool = False
    """True if keys and values are expanded from a latent of `kv_rank` elements, `rope_width` of a key aside."""
    query_rank: int = 0
    kv_rank: int = 0
    rope_width: int = 0


@dataclass(frozen=True, slots=True)
class Routing:
    """Choice of a token among feed-forward layers, and the messages that follow from it."""

    routed: int
    top_k: int
    width: int
    """Width of one of them [elements]."""
    shared_width: int
    """Width of all parts together that every token visits [elements]."""
    message_width: int
    """Elements of a token that are sent to each; the hidden width where 0."""
    groups: int = 1
    """Groups of equally many parts, each on one node or device."""
    groups_per_token: int = 1
    """Most groups whose parts a token visits."""


@dataclass(frozen=True, slots=True)
class Activation:
    """Activation function of a feed-forward layer."""

    width: int
    """Outputs per token, of all that it visits [elements]."""
    gated: bool


@dataclass(frozen=True, slots=True)
class LaunchWords:
    """Words with which a training framework runs a layer, or the reason why it cannot."""

    letter: str = ""
    """Letter of the layer in a pattern of layers; empty where the framework has none."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Values by the framework's argument, which counts for all layers of a model; None for one that is not set."""
    differences: tuple[str, ...] = ()
    """Differences of the framework's layer, a sentence each without a full stop."""
    refusal: str = ""
    """Reason why the framework cannot run the layer, a clause after "because"; empty where it can."""


class LayerKind(LayerEntity):
    """A layer of some kind, with its shape."""

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Add the kind to documents that leave defaults out: a reader needs it."""
        return {"kind": getattr(self, "kind", ""), **handler(self)}

    @property
    @abstractmethod
    def word(self) -> str:
        """Word for the kind in patterns, such as "attention"."""

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return self.word.replace("_", " ")

    @property
    def is_scan(self) -> bool:
        """True if tokens are mixed through a state of fixed size, not by attention."""
        return False

    @property
    def residual_streams(self) -> int:
        """Vectors of the hidden width that each token has between blocks: more than 1 widens the residual stream,
        hence messages between pipeline stages and the input that full recomputation keeps."""
        return 1

    @abstractmethod
    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights.

        Args:
            hidden: width of the residual stream [elements].
        """

    @abstractmethod
    def count_vectors(self, hidden: int) -> int:
        """Return the weights that are not in products: biases, norms inside the layer, convolutions, decays.

        Args:
            hidden: width of the residual stream [elements].
        """

    def count_visited_vectors(self, hidden: int) -> int:
        """Return the weights of `count_vectors` that one token passes through.

        Args:
            hidden: width of the residual stream [elements].
        """
        return self.count_vectors(hidden)

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the elements that a sequence keeps of the layer; none by default.

        Args:
            hidden: width of the residual stream [elements].
        """
        return SequenceState()

    @abstractmethod
    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the work between the products, of one token of a sequence in training or prefill.

        Args:
            hidden: width of the residual stream [elements].
            tokens: length of the sequence [tokens]; a number or an array, as are the figures then.
            causal: False counts every pair of tokens in a window or choice, True what a causal mask leaves on average;
                equal for scans.
        """

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return the work between the products, of one new token behind a context; all its pairs by default.

        Reads of a growing cache depend on its datatype and are not in `moved`; see `count_cache_reads`.

        Args:
            hidden: width of the residual stream [elements].
            context: tokens before it [tokens].
        """
        return self.mixing(hidden, context, causal=False)

    def count_mixing_flops(self, hidden: int, tokens: float, *, causal: bool) -> float:
        """Return the matrix operations between the products that published figures count [FLOP]; as in `mixing`,
        unless kernels run more of them.

        Args:
            hidden: width of the residual stream [elements].
            tokens: length of the sequence [tokens].
            causal: as in `mixing`.
        """
        return self.mixing(hidden, tokens, causal=causal).matrix

    def count_cache_reads(self, hidden: int, context: float, tensor_par: Any = 1) -> Any:
        """Return the cached elements that one new token reads on a tensor-parallel rank, states of fixed size left out:
        they are in `decoding`.

        Args:
            hidden: width of the residual stream [elements].
            context: tokens before it [tokens].
            tensor_par: degrees, a number or an array [rows].
        """
        return self.sequence_state(hidden).count_grown(context, tensor_par)

    @abstractmethod
    def kept(self, hidden: int) -> KeptBytes:
        """Return the activations of one token that the backward pass needs.

        Args:
            hidden: width of the residual stream [elements].
        """

    def softmax(self) -> SoftmaxShape | None:
        """Return the shape of the layer's attention where fused kernels compute it; None for other layers."""
        return None

    def routing(self) -> Routing | None:
        """Return how tokens are sent to parts of the layer; None where all ranks do the same."""
        return None

    def activation(self) -> Activation | None:
        """Return the activation function of a feed-forward layer; None for layers that mix tokens."""
        return None

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return what context-parallel ranks send each other; nothing by default.

        Args:
            hidden: width of the residual stream [elements].
        """
        return ContextExchange()

    def reduced(self, hidden: int) -> float:
        """Return the bytes per token that tensor-parallel ranks sum up inside the layer, besides its output [bytes].

        Args:
            hidden: width of the residual stream [elements].
        """
        return 0.0

    def tensor_divisors(self) -> Mapping[str, int]:
        """Return the sizes that a tensor-parallel degree must divide, by the name that sentences give them."""
        return {}

    def repeated_sizes(self) -> frozenset[str]:
        """Return names among `tensor_divisors` of sizes that serving engines repeat where they are too few."""
        return frozenset()

    def context_divisors(self) -> Mapping[str, int]:
        """Return the sizes that the product of tensor- and context-parallel degrees must divide, by name."""
        return {}

    def launch_words(self, framework: str, hidden: int) -> LaunchWords:
        """Return the words with which a training framework runs the layer; by default it cannot.

        Args:
            framework: name of it, as in `engine.launch.FRAMEWORKS`.
            hidden: width of the residual stream [elements].
        """
        return LaunchWords(refusal=f"it has no {self.title}")

    @classmethod
    def from_launch_words(cls, framework: str, letter: str, arguments: Mapping[str, Any], hidden: int) -> Self | None:
        """Return the layer that a letter and arguments of a framework mean; None where they mean another kind.

        Args:
            framework: name of it, as in `engine.launch.FRAMEWORKS`.
            letter: of the layer in a pattern of layers.
            arguments: values by the framework's argument, with its defaults; `get` returns None for one that is not
                set, and indexing raises an error that names it.
            hidden: width of the residual stream [elements].
        """
        return None

    def count_parameters(self, hidden: int) -> int:
        """Return all weights of the layer.

        Args:
            hidden: width of the residual stream [elements].
        """
        return sum(each.parameters for each in self.products(hidden)) + self.count_vectors(hidden)

    def count_visited_parameters(self, hidden: int) -> int:
        """Return the weights that one token passes through.

        Args:
            hidden: width of the residual stream [elements].
        """
        return sum(each.visited_parameters for each in self.products(hidden)) + self.count_visited_vectors(hidden)
