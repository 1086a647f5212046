"""Terms of mixing that several kinds share: attended tokens, convolutions, kernels of delta rules.

Every figure of traffic is counted from the kernels named beside it, not measured: modelled.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from models.layers.contract import MixingWork

__all__ = ["BF16", "DELTA_CHUNK", "FP32", "attended_tokens", "convolution_bytes", "decode_state", "merge_work"]

BF16: Final = 2
"""Bytes of an activation [bytes]."""
FP32: Final = 4
"""Bytes of a decay, a step or a recurrent state of a serving engine [bytes]. Source: fla 0.6.0, mamba-ssm 2.3.2; vLLM
and SGLang keep states in 32 bits unless `mamba_ssm_cache_dtype` says otherwise."""
DELTA_CHUNK: Final = 64
"""Tokens C of a chunk of a delta rule. Source: fla 0.6.0, `chunk_gated_delta_rule` and `chunk_kda`."""

LEAST: Final = 1e-300
"""Tokens in the denominator of an empty sequence."""


def attended_tokens(tokens: float, window: float | None, *, causal: bool, chunked: bool = False) -> float:
    """Return the tokens that a token is multiplied with, on average; a causal window of w in s tokens holds w - w²/2s.

    Args:
        tokens: length s of the sequence [tokens]; a number or an array.
        window: tokens w of a window or a choice; all where None.
        causal: True leaves out what a causal mask discards.
        chunked: True for windows that are fixed chunks (Llama 4), not ones that end at each token.
    """
    if window is None:
        return tokens / 2 if causal else tokens * 1.0
    seen: float = np.minimum(tokens, window)
    if chunked:
        whole = np.floor_divide(tokens, window)
        rest = tokens - whole * window
        squares: float = (whole * window**2 + rest**2) / np.maximum(tokens, LEAST)  # each chunk sees itself only
        return squares / 2 if causal else squares
    if not causal:
        return seen * 1.0
    masked: float = seen**2 / (2 * np.maximum(tokens, LEAST))
    return seen - masked


def convolution_bytes(channels: int) -> float:
    """Return the traffic of a causal convolution per token: a read and a write of each channel [bytes].

    Args:
        channels: width of the convolution [elements].
    """
    return 2.0 * BF16 * channels


def decode_state(columns: int, states: int) -> float:
    """Return the traffic of states for one new token: each is read and written [bytes].

    Args:
        columns: of convolutions, in 16 bits [elements].
        states: recurrent ones, in 32 bits [elements].
    """
    return 2.0 * (BF16 * columns + FP32 * states)


def merge_work(first: MixingWork, second: MixingWork) -> MixingWork:
    """Return the work of two parts of a layer together.

    Args:
        first: one part.
        second: the other part.
    """
    return MixingWork(
        matrix=first.matrix + second.matrix,
        vector=first.vector + second.vector,
        moved=first.moved + second.moved,
        kernels=first.kernels + second.kernels,
        repeated_matrix=first.repeated_matrix + second.repeated_matrix,
        repeated_moved=first.repeated_moved + second.repeated_moved,
    )
