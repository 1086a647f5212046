"""Assumptions that serving adds to the calibration of training: few numbers, each with its source.

Rates (matrix, memory, networks) come from the calibration. These numbers are not fitted: serving is modelled, not
validated against measured serving runs; README says how published figures compare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.cost_models.calibrated import Parameters
from hardware import GIB
from models import Model, datatypes
from models.documents import shown

__all__ = ["Assumptions"]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Stated numbers of a serving framework; units in brackets."""

    reserve_share: float = 0.1
    """Share of the memory left to context, communication buffers and fragmentation []. Source: vLLM's default
    (gpu_memory_utilization 0.9)."""
    graph_memory: float = 2.0 * GIB
    """Memory of captured graphs [bytes]. Source: vLLM's log, which names 1 to 3 GiB per processor."""
    collective_latency: float = 5e-6
    """Base latency of a collective inside a serving step [s]; one of 8 ranks takes 1.7 times as much. Source:
    all-reduces of 4 KiB over 8 H100 take 5.7 us in TensorRT-LLM's kernel and 9.3 us in vLLM's (sgl-project/sglang pull
    request 2904); the 34 us of training include what its hosts add."""
    graph_kernel_start: float = 2e-6
    """Start and end of a kernel inside a captured graph [s], against 3.5 us for one launched by the host. Source:
    stated by us, looking at recalled single-user output of Llama 3.1 405B."""
    four_bits: float = datatypes.named("mxfp4").weight_bits
    """Bits per weight of 4-bit formats with an 8-bit scale for every 32 weights, or a 16-bit one for every 64 [bits].
    Source: count of bits."""
    prefill_chunk: int = 8192
    """Most prompt tokens in one pass [tokens]. Source: defaults of vLLM (max_num_batched_tokens of its server), SGLang
    (chunked_prefill_size) and TensorRT-LLM (max_num_tokens) on GPUs with 80 GB or more: 8,192."""
    prefix_hit_rate: float = 0.0
    """Share of the prompt tokens that are found in the prefix cache and not computed [dimensionless]. Engines keep
    such a cache, but its hits depend on the requests alone: none by default. Memory that requests share is counted for
    each. Source: stated by us."""

    host_hit_share: float = 0.0
    """Share of the hits of the prefix cache whose keys and values are in the memory of the host, from where they are
    loaded or else computed again, whichever takes a lone prompt less time [dimensionless]. Source: none by default, as
    in vLLM, SGLang and TensorRT-LLM, which keep no cache there without a flag."""
    host_cache_gib: float | None = None
    """Memory of the host for the cache of one processor [GiB]; None for all that the system has per processor."""

    draft_tokens: int = 0
    """Tokens that a draft predicts per step and request, which the step then checks: layers for multi-token prediction
    of the model's own, each a block and the head [tokens]. Their weights are not counted. Source: none by default,
    stated by us."""
    accepted_tokens: float = 0.0
    """Draft tokens that are accepted per step on average [tokens]. Source: none by default, stated by us; the second
    token of DeepSeek-V3 is accepted in 85 to 90 % of the steps (arXiv:2412.19437, section 5.4.3)."""

    acceptance_rate: float | None = None
    """Probability that a draft token is accepted where those before it are, instead of `accepted_tokens`
    [dimensionless]; k drafts then give (1 - a^(k + 1)) / (1 - a) tokens per step. Source: Leviathan et al. 2023
    (arXiv:2211.17192), equation 1."""
    draft_model: Model | None = None
    """Model that drafts, on the tensor-parallel group of the last stage, with a cache of its own; None for layers of
    the model's own. Source: vLLM, SGLang and TensorRT-LLM run the draft on the ranks of the model."""
    draft_bits: int = 16
    """Bits of the draft model's weights and products: 16, 8 or 4 [bits]. Source: checkpoints of small models have 16;
    vLLM's speculative-config quantization and SGLang's --speculative-draft-model-quantization state others."""

    lora_adapters: int = 0
    """Adapters of low rank (LoRA) that are in the memory at once, one of which each request has [adapters]. Source:
    none by default, as in vLLM, SGLang and TensorRT-LLM; where they are on, vLLM holds 1 and SGLang 8."""
    lora_rank: int = 16
    """Rank of every adapter [dimensionless]. Source: default of vLLM's --max-lora-rank; Hu et al. 2021
    (arXiv:2106.09685) use 1 to 64."""

    def __post_init__(self) -> None:
        """Raise `ValueError` with a sentence for a number out of range."""
        chunk, hits = self.prefill_chunk, self.prefix_hit_rate
        if isinstance(chunk, bool) or not isinstance(chunk, int) or not 1 <= chunk <= 2**20:
            raise ValueError(f"prefill_chunk is {shown(chunk)}; it must be a whole number from 1 to {2**20:,} tokens.")
        if isinstance(hits, bool) or not isinstance(hits, int | float) or not 0 <= hits <= 1:
            raise ValueError(f"prefix_hit_rate is {shown(hits)}; it must be a share from 0 to 1.")
        share, host = self.host_hit_share, self.host_cache_gib
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"host_hit_share is {shown(share)}; it must be a share from 0 to 1.")
        if host is not None and (isinstance(host, bool) or not isinstance(host, int | float) or not 0 < host <= 1e6):
            raise ValueError(f"host_cache_gib is {shown(host)}; it must be above 0 and at most 1,000,000 GiB.")

        drafts, accepted = self.draft_tokens, self.accepted_tokens
        if isinstance(drafts, bool) or not isinstance(drafts, int) or not 0 <= drafts <= 64:
            raise ValueError(f"draft_tokens is {shown(drafts)}; it must be a whole number from 0 to 64.")
        if isinstance(accepted, bool) or not isinstance(accepted, int | float) or not 0 <= accepted <= drafts:
            raise ValueError(
                f"accepted_tokens is {shown(accepted)}; it must be from 0 to the {drafts} draft_tokens of a step."
            )

        rate = self.acceptance_rate
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1):
            raise ValueError(f"acceptance_rate is {shown(rate)}; it must be a share from 0 to 1.")
        if rate is not None and accepted:
            raise ValueError("Give acceptance_rate or accepted_tokens, not both.")
        for name in ("draft_model", "acceptance_rate"):
            if getattr(self, name) is not None and not drafts:
                raise ValueError(f"{name} needs draft_tokens of 1 or more.")
        if self.draft_bits not in (16, 8, 4) or isinstance(self.draft_bits, bool):
            raise ValueError(f"draft_bits is {shown(self.draft_bits)}; it must be 16, 8 or 4.")
        if self.draft_bits != 16 and self.draft_model is None:
            raise ValueError("draft_bits is about a draft model; give draft_model, too.")
        for name, least, most in (("lora_adapters", 0, 4096), ("lora_rank", 1, 1024)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{name} is {shown(value)}; it must be a whole number from {least} to {most:,}.")

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a request gets in a decode step: its own and those accepted."""
        if self.acceptance_rate is None:
            return 1.0 + self.accepted_tokens
        # The sum of a^i, also where a is 1.
        return math.fsum(self.acceptance_rate**i for i in range(self.draft_tokens + 1))

    def parameters(self, p: Parameters, *, captured: bool) -> Parameters:
        """Returns the calibration with the latency of serving, and the kernel start of captured graphs where there are
        any."""
        start = min(self.graph_kernel_start, p.kernel_start) if captured else p.kernel_start
        return p.model_copy(update={"latency": min(self.collective_latency, p.latency), "kernel_start": start})
