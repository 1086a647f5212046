"""Mixtures of experts: a router, routed and shared experts, also on a latent width, also with experts of no work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from models.documents import Whole
from models.layers.contract import (
    Activation,
    Count,
    KeptBytes,
    LaunchWords,
    LayerKind,
    MixingWork,
    Product,
    Routing,
    Width,
)
from models.layers.mixing_terms import BF16, FP32

__all__ = ["ExpertsLayer"]


class ExpertsLayer(LayerKind):
    """E experts of width f, k of which a token visits."""

    kind: Literal["experts"] = "experts"
    routed: Count
    """Experts E that do work."""
    top_k: Count
    """Experts k that a token visits."""
    width: Width
    """Width f of one expert [elements]."""
    gated: bool = True
    bias: bool = False
    groups: Count = 1
    """Groups of equally many experts, of which a token visits only some (DeepSeek-V3, section 2.1.2)."""
    groups_per_token: Count = 1
    shared_width: Annotated[int, Whole(0, 2**22)] = 0
    """Width of all experts together that every token visits [elements]."""
    shared_gate: bool = False
    """True if the shared experts are gated by one number per token (Qwen)."""
    router_bias: bool = False
    """True if the router has one trained bias per expert."""
    router_scales: bool = False
    """True if the router scales its input and each expert (Gemma 4)."""
    latent: Width | None = None
    """Width on which routed experts work, between two products (Nemotron 3); the hidden width where None."""
    latent_norm: bool = False
    """True if that width is normalised (Kimi K3)."""
    zero_experts: Annotated[int, Whole(0, 2**16)] = 0
    """Further experts of the router that return their input (LongCat)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.top_k > self.routed + self.zero_experts:
            raise PydanticCustomError(
                "refused",
                "has top_k {top_k} of {routed} routed experts; top_k must be at most that",
                {"top_k": self.top_k, "routed": self.routed},
            )
        return self

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "experts"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: router, experts, shared experts, and those around a latent width."""
        inside, branches = hidden if self.latent is None else self.latent, 2 if self.gated else 1
        found = [
            Product("router", self.routed + self.zero_experts, hidden, split="none", negligible=True),
            Product("experts_up", branches * self.width, inside, self.routed, self.top_k, matrices=branches),
            Product("experts_down", inside, self.width, self.routed, self.top_k, split="inputs"),
        ]
        if self.shared_width:
            found += [
                Product("shared_up", branches * self.shared_width, hidden, matrices=branches),
                Product("shared_down", hidden, self.shared_width, split="inputs"),
            ]
        if self.shared_gate:
            found.append(Product("shared_gate", 1, hidden, split="none", negligible=True))
        if self.latent is not None:
            found += [
                Product("latent_down", inside, hidden, split="none"),
                Product("latent_up", hidden, inside, split="none"),
            ]
        return tuple(found)

    def routing(self) -> Routing:
        """Return how tokens are sent to experts."""
        return Routing(
            self.routed,
            self.top_k,
            self.width,
            self.shared_width,
            self.latent or 0,
            self.groups,
            self.groups_per_token,
        )

    def activation(self) -> Activation:
        """Return the activation functions of the experts that a token visits."""
        return Activation(self.top_k * self.width + self.shared_width, self.gated)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of biases, scales and norms."""
        return self._count_vectors(hidden, self.routed)

    def count_visited_vectors(self, hidden: int) -> int:
        """Return the weights of `count_vectors` of the experts that a token visits."""
        return self._count_vectors(hidden, self.top_k)

    def _count_vectors(self, hidden: int, experts: int) -> int:
        branches = 2 if self.gated else 1
        found = experts * (branches * self.width + hidden) if self.bias else 0
        found += branches * self.shared_width + hidden if self.bias and self.shared_width else 0
        found += self.routed if self.router_bias else 0
        found += hidden + self.routed if self.router_scales else 0
        return found + (self.latent or 0 if self.latent_norm else 0)

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the choice of experts, copies of tokens to them and back, and activations; counted, not measured."""
        inside, tensors = hidden if self.latent is None else self.latent, 3.0 if self.gated else 2.0
        router = 2.0 * FP32 * (self.routed + self.zero_experts)  # scores in 32 bits, written and read
        # One copy of the token per choice, and the weighted sum of their outputs.
        copies = 2.0 * BF16 * (1 + self.top_k) * inside
        # Activations read one branch, or two, and write their product.
        active = tensors * BF16 * (self.top_k * self.width + self.shared_width)
        kernels = 5 + (1 if self.shared_width else 0)
        return MixingWork(moved=router + copies + active, kernels=kernels, repeated_moved=router)

    def kept(self, hidden: int) -> KeptBytes:
        """Return inputs, activations and outputs of the choices, scores of the router, and shared activations."""
        inside, tensors = hidden if self.latent is None else self.latent, 3 if self.gated else 2
        whole = 2 * BF16 * self.top_k * inside + 2 * FP32 * (self.routed + self.zero_experts)
        if self.latent is not None:  # outputs of the product before the experts and of their sum
            whole += 2 * BF16 * inside
        return KeptBytes(tensors * BF16 * (self.top_k * self.width + self.shared_width), whole)

    def tensor_divisors(self) -> dict[str, int]:
        """Return the width of shared experts; routed ones are divided by a degree of their own."""
        return {"shared experts' width": self.shared_width} if self.shared_width else {}

    def launch_words(self, framework: str, hidden: int) -> LaunchWords:
        """Return "E" of Megatron-LM's patterns."""
        if framework != "megatron":
            return LaunchWords()
        missing = {
            "experts that return their input": bool(self.zero_experts),
            "router with scales": self.router_scales,
            "norm of the latent width of experts": self.latent_norm,
            "biases of the router without biases of experts, nor these without those": self.router_bias != self.bias,
            "biases of shared experts": self.bias and bool(self.shared_width),
        }
        if found := [words for words, is_met in missing.items() if is_met]:
            return LaunchWords(refusal=f"it has no {' and no '.join(found)}")
        has_groups = self.groups > 1
        return LaunchWords(
            "E",
            {
                "num_experts": self.routed,
                "moe_router_topk": self.top_k,
                "moe_ffn_hidden_size": self.width,
                "swiglu": self.gated,
                "add_bias_linear": self.bias,
                "moe_shared_expert_intermediate_size": self.shared_width or None,
                "moe_shared_expert_gate": self.shared_gate,
                "moe_latent_size": self.latent,
                "moe_router_num_groups": self.groups if has_groups else None,
                "moe_router_group_topk": self.groups_per_token if has_groups else None,
            },
        )

    @classmethod
    def from_launch_words(cls, framework: str, letter: str, arguments: Mapping[str, Any], hidden: int) -> Self | None:
        """Return the layer of "E" of Megatron-LM's patterns."""
        if letter != "E":
            return None
        bias, shared = bool(arguments["add_bias_linear"]), arguments.get("moe_shared_expert_intermediate_size") or 0
        return cls(
            routed=arguments["num_experts"],
            top_k=arguments["moe_router_topk"],
            width=arguments.get("moe_ffn_hidden_size") or arguments["ffn_hidden_size"],
            gated=bool(arguments["swiglu"]),
            bias=bias,
            router_bias=bias,
            shared_width=shared,
            shared_gate=bool(shared and arguments["moe_shared_expert_gate"]),
            latent=arguments.get("moe_latent_size"),
            groups=arguments.get("moe_router_num_groups") or 1,
            groups_per_token=arguments.get("moe_router_group_topk") or 1,
        )
