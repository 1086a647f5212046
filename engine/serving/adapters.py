"""Adapters of low rank (LoRA) that one deployment serves beside its model: their weights, and the products they add.

An adapter adds B A x to the result of a matrix, A of rank x inputs and B of outputs x rank. Adapted are the products
around attention or in its place, of feed-forward layers and of shared experts; routed experts, router, embedding and
LM head are not. A rank of a tensor-parallel group holds the part of A or B that its part of the matrix needs and the
other one whole, so that no message is added: vLLM without `--fully-sharded-loras`. Source: vLLM's documentation of its
LoRA adapters, and vllm/lora/layers.

Every request has an adapter, all alike often. Of A adapters, N requests of a pass visit A (1 - (1 - 1/A)^N) distinct
ones, whose weights are read once (Chen et al. 2023, Punica, arXiv:2310.18547: gathered products of one launch for each
thin product). Modelled: no measured server has adapters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from engine.cost_models.calibrated import (
    Case,
    LinearLayer,
    attention_layers,
    expert_layers,
    feedforward_layers,
    launch_time,
    layer_cases,
    local_products,
)
from engine.executions.arrays import Floats
from engine.serving.passes import Blocks, PassSetting, PassWork

__all__ = ["AdapterTerms", "adapter_bytes", "add_adapters"]

ADAPTER_BYTES = 2.0
"""Bytes per weight of an adapter, in 16 bits also where the model's weights have fewer [bytes]. Source: default of
vLLM's --lora-dtype, the model's own datatype."""
ADAPTER_KERNELS = 2.0
"""Kernels that an adapted product adds: one for each thin product, of all requests. Source: Punica, section 4."""
THIN_BYTES = 4.0
"""Bytes per element between the thin products [bytes]: 32 bits. Source: vllm/lora/punica_wrapper, whose buffer is
float32."""


_PACKED: Final = "query_key_value"
"""Product that has three matrices in one, each with an A of its own; `*_up` of a gated layer has two."""


class AdaptedProduct(NamedTuple):
    """Product with adapters: its part on one processor, and matrices in it that have an A of their own."""

    layer: LinearLayer
    matrices: float

    @property
    def sides(self) -> Floats:
        """Weights of an adapter of rank 1 [elements]."""
        return np.asarray(self.layer.n + self.matrices * self.layer.k)


class AdapterTerms(NamedTuple):
    """Adapters that are on the processors at once, and rank of each; no adapters, no work."""

    number: float = 0.0
    rank: float = 16.0


def _adapted_products(case: Case) -> tuple[tuple[AdaptedProduct, ...], ...]:
    """Return the adapted products on one processor of every part of a block, in the order of the model's
    `engine.serving.shapes.BlockPattern`."""
    model = case.model
    if model.pattern is not None:
        hidden, kinds = int(np.ravel(model.hidden)[0]), []
        for layers in layer_cases(case):
            found: list[AdaptedProduct] = []
            for layer, view in layers:
                # Routers and other small products have no adapter.
                held = {each.name for each in layer.products(hidden) if each.held == 1 and not each.negligible}
                acted = layer.activation()
                here = {name: each for name, each in local_products(layer, view).items() if name in held}
                found += _with_matrices(here, is_gated=acted is not None and bool(acted.gated))
            kinds.append(tuple(found))
        return tuple(kinds)
    is_gated = bool(np.any(model.gated > 0))
    attention = tuple(_with_matrices(attention_layers(case), is_gated=False))
    dense = tuple(_with_matrices(feedforward_layers(case), is_gated=is_gated))
    if not np.any(model.experts > 0):
        return attention, attention, dense, dense
    shared = {name: each for name, each in expert_layers(case).items() if name.startswith("shared")}
    return attention, attention, dense, tuple(_with_matrices(shared, is_gated=is_gated))


def _with_matrices(layers: Mapping[str, LinearLayer], *, is_gated: bool) -> list[AdaptedProduct]:
    def matrices(name: str) -> float:
        if name == _PACKED:
            return 3.0
        return 2.0 if is_gated and name in ("feedforward_up", "shared_up") else 1.0

    return [AdaptedProduct(each, matrices(name)) for name, each in layers.items()]


def adapter_bytes(case: Case, terms: AdapterTerms) -> tuple[Floats, ...]:
    """Returns the bytes of all adapters on a processor in every part of a block [rows] [bytes].

    Args:
        case: model and layouts [rows].
        terms: number and rank of the adapters.
    """
    each = ADAPTER_BYTES * terms.number * terms.rank
    return tuple(
        sum((each * product.sides for product in products), start=np.zeros(())) for products in _adapted_products(case)
    )


def add_adapters(blocks: Blocks, setting: PassSetting, terms: AdapterTerms) -> Blocks:
    """Returns the work of a pass with the thin products of its adapters, and the launches of their kernels.

    Args:
        blocks: without adapters.
        setting: of the pass.
        terms: number and rank of the adapters, at least one.
    """
    work, wide = setting.work, setting.rates.wide
    requests = np.asarray(work.requests + work.prompts)
    visited = terms.number * (1.0 - (1.0 - 1.0 / terms.number) ** np.maximum(requests, 1.0))
    host = ADAPTER_KERNELS * launch_time(setting.case, setting.p)
    parts, launches = [], []
    for part, launch, products in zip(blocks.parts, blocks.launches, _adapted_products(setting.case), strict=True):
        seconds: Floats = np.zeros(())
        for each in products:
            weights = ADAPTER_BYTES * visited * terms.rank * each.sides
            # Inputs are read, the thin results written and read, and the results added to.
            m, thin = each.layer.m, 2.0 * THIN_BYTES * terms.rank * each.matrices
            moved = m * (2.0 * each.layer.k + thin + 4.0 * each.layer.n)
            memory = (weights + moved) / (wide.rates.memory * wide.device.memory)
            compute = 2.0 * m * terms.rank * each.sides / (wide.rates.matrix * wide.device.matrix)
            seconds = seconds + ADAPTER_KERNELS * wide.rates.start + np.maximum(memory, compute)
        parts.append(part.plus(PassWork.of(linear=seconds)))
        launches.append(launch + len(products) * host)
    return replace(blocks, parts=tuple(parts), launches=tuple(launches))
