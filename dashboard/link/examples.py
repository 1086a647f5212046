"""Questions to start with, as links: the first is what the dashboard opens on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["EXAMPLES", "Example"]


@dataclass(frozen=True, slots=True)
class Example:
    """A question: `kind` and `title` say which, `about` what one sees there; `page` answers it at `parameters`."""

    name: str
    kind: str
    title: str
    about: str
    page: str
    parameters: Mapping[str, str]


_NO_OFFLOAD: Final = "weight_offload:off;activations_offload:off;optimizer_offload:off"


def _scenario_parameters(
    model: str, system: str, procs: int, batch: int, datatype: str, limits: str = ""
) -> Mapping[str, str]:
    named = {"model": model, "system": system, "procs": str(procs), "batch": str(batch), "type": datatype}
    return MappingProxyType(named | ({"limits": limits} if limits else {}))


EXAMPLES: Final = (
    Example(
        "dense",
        "Dense model",
        "Llama 3.1 70B on 512 H100s",
        "BF16, sequences of 8,192 tokens, no offload; calibrated by measured runs.",
        "explore",
        _scenario_parameters("llama-3.1-70B", "h100_80g_sxm", 512, 1024, "bfloat16", _NO_OFFLOAD),
    ),
    Example(
        "experts",
        "Mixture of experts",
        "Mixtral 8x22B on 128 H100s",
        "Expert parallelism with tensor, pipeline and data parallelism.",
        "explore",
        _scenario_parameters("mixtral-8x22B", "h100_80g_sxm", 128, 1024, "bfloat16", _NO_OFFLOAD),
    ),
    Example(
        "codesign",
        "Co-design",
        "GPT-3 175B on Calculon's H100s",
        "Calculon's own system and model. Change the hardware under What-if.",
        "explore",
        _scenario_parameters("gpt3-175B", "h100_80g_nvl8", 512, 512, "float16"),
    ),
    Example(
        "serving",
        "Serving",
        "Llama 3.1 70B on 8 H100s",
        "Latency, throughput and cost of answers.",
        "serving",
        MappingProxyType(
            {
                "serving_model": "llama-3.1-70B",
                "serving_system": "h100_80g_sxm",
                "serving_procs": "8",
            }
        ),
    ),
)
"""Scenarios to start from. They do not offload, as no measured run did."""
