"""Every way a deployment can be invalid or infeasible, as data; the position is the order of checking.

`invalid` makes no sense for the model, `infeasible` cannot run on the system or misses a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from engine.executions.reasons import Reason

__all__ = ["FITS", "REASONS", "by_code", "code_of", "number_of", "sentence"]

FITS: Final = 0
"""Reason number of a deployment that nothing is wrong with."""


def _build_reason(status: Literal["infeasible", "invalid"], code: str, label: str, template: str) -> Reason:
    return Reason(code, status, label, template)


REASONS: Final[tuple[Reason, ...]] = (
    _build_reason(
        "invalid",
        "not_positive",
        "A degree or length is below 1",
        "TP {tensor_par:,}, PP {pipeline_par:,}, EP {expert_par:,}, {replicas:,} replicas, batch {batch:,}, prompt "
        "{prompt:,}, output {output:,}: each must be at least 1.",
    ),
    _build_reason(
        "invalid",
        "unknown_bits",
        "Unknown precision",
        "Weights have {weight_bits} and the KV cache {kv_bits} bits; each must be 16, 8 or 4.",
    ),
    _build_reason(
        "invalid",
        "unknown_launch",
        "Unknown launch mode",
        "launch is '{launch}'; it must be eager, compiled or graphs.",
    ),
    _build_reason(
        "invalid",
        "heads_not_divisible",
        "TP does not divide the heads",
        "The model has {heads:,} attention heads, which TP {tensor_par:,} does not divide.",
    ),
    _build_reason(
        "invalid",
        "kv_heads_not_divisible",
        "TP and KV heads do not divide",
        "The model has {kv_heads:,} key and value heads; TP {tensor_par:,} must divide them or be a multiple.",
    ),
    _build_reason(
        "invalid",
        "feedforward_not_divisible",
        "TP does not divide the MLP",
        "The MLP is {feedforward:,} wide, which TP {tensor_par:,} does not divide.",
    ),
    _build_reason(
        "invalid",
        "pipeline_exceeds_blocks",
        "More stages than blocks",
        "PP {pipeline_par:,} is more than the model's {blocks:,} blocks.",
    ),
    _build_reason(
        "invalid",
        "no_experts",
        "EP without experts",
        "EP is {expert_par:,}, but the model has no experts; it must be 1.",
    ),
    _build_reason(
        "invalid",
        "experts_not_divisible",
        "EP does not divide the experts",
        "A layer has {experts:,} experts, which EP {expert_par:,} does not divide.",
    ),
    _build_reason(
        "invalid",
        "expert_layout",
        "EP does not match TP and replicas",
        "EP {expert_par:,} must divide TP {tensor_par:,}, or be a multiple of it that divides TP x replicas, "
        "{tensor_replicas:,}.",
    ),
    _build_reason(
        "invalid",
        "expert_width_not_divisible",
        "TP does not divide the expert",
        "An expert is {expert_feedforward:,} wide, which TP / EP, {slices:,}, does not divide.",
    ),
    _build_reason(
        "infeasible",
        "context_too_long",
        "Longer than the model's context",
        "Prompt and output have {length:,} tokens; the model's context ends at {context:,}.",
    ),
    _build_reason(
        "infeasible",
        "network_too_small",
        "Networks too small",
        "A replica, with the others that share its experts, takes {reach:,} GPUs, but the networks of the system "
        "connect {connected:,}.",
    ),
    _build_reason("infeasible", "memory", "Out of HBM", "Needs {need} of HBM, but a GPU has {have}: {short} too much."),
    _build_reason(
        "infeasible",
        "time_to_first_token",
        "First token too late",
        "The first token takes {ttft:,.4g} ms, more than the limit of {ttft_limit:,.4g} ms.",
    ),
    _build_reason(
        "infeasible",
        "time_per_output_token",
        "Tokens too slow",
        "An output token takes {tpot:,.4g} ms, more than the limit of {tpot_limit:,.4g} ms.",
    ),
)

_NUMBERS: Final[Mapping[str, int]] = {reason.code: position for position, reason in enumerate(REASONS, start=1)}


def number_of(code: str) -> int:
    """Returns the small integer that arrays carry for a reason code.

    Args:
        code: stable word for a reason, such as "context_too_long".
    """
    return _NUMBERS[code]


def code_of(number: int) -> str:
    """Returns the stable code of a reason number, "" for 0.

    Args:
        number: of a reason; 0 for none.
    """
    return "" if number == FITS else REASONS[number - 1].code


def by_code(code: str) -> Reason:
    """Returns the reason of a code.

    Args:
        code: stable word for a reason, such as "context_too_long".

    Raises KeyError for a code that there is not.
    """
    return REASONS[_NUMBERS[code] - 1]


def sentence(code: str, quantities: Mapping[str, Any]) -> str:
    """Returns the sentence of one deployment; `quantities` gives each placeholder of the template.

    Args:
        code: stable word for a reason, such as "context_too_long".
        quantities: value of each placeholder in the template, by name.
    """
    return by_code(code).template.format(**quantities)
