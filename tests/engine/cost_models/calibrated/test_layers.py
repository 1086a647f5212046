"""Linear layers as data: on all processors of a group together they hold the weights that publications count."""

from __future__ import annotations

import numpy as np
import pytest

import hardware
import models
from engine.cost_models.calibrated import Case, case_of
from engine.cost_models.calibrated.physics.layers.block import attention_layers, feedforward_layers
from engine.cost_models.calibrated.physics.layers.experts import expert_layers
from engine.cost_models.calibrated.physics.layers.gemm import LinearLayer
from engine.cost_models.calibrated.physics.layers.head import head_layer
from models.parameters import attention_weights, expert_weights, mlp_weights

SYSTEM = hardware.load("h100_80g_sxm")
PUBLISHED = (
    "llama-2-7B",
    "llama-3.1-70B",
    "falcon-40B",
    "mixtral-8x7B",
    "qwen2-57B-A14B",
    "gpt-oss-120B",
    "deepseek-v2-lite",
    "deepseek-v3",
)


def one(name: str, tensor_par: int, **layout: float) -> Case:
    values = {"pipeline_par": 1, "data_par": 8, "microbatch_size": 2, "batch_size": 16, **layout}
    return case_of(models.load(name), SYSTEM, {"tensor_par": tensor_par, **values})


def held(layer: LinearLayer) -> float:
    return float(layer.n * layer.k * layer.count)


@pytest.mark.parametrize("tensor_par", [1, 2, 4])
@pytest.mark.parametrize("name", PUBLISHED)
def test_layers_hold_the_published_weights(name: str, tensor_par: int) -> None:
    architecture = models.load(name).architecture
    assert architecture is not None
    case = one(name, tensor_par, expert_par=2, expert_tensor_par=2)
    layers = attention_layers(case)
    # Compressions of latent attention are whole on every processor.
    split = sum(
        held(layer) * (1 if whole else tensor_par)
        for layer_name, layer in layers.items()
        for whole in [layer_name in ("query_down", "key_value_down")]
    )
    assert split == attention_weights(architecture)
    assert sum(map(held, feedforward_layers(case).values())) * tensor_par == mlp_weights(architecture)
    assert held(head_layer(case)) * tensor_par == architecture.hidden * architecture.vocab_padded
    if architecture.experts is None:
        return
    found = expert_layers(case)
    routed = sum(held(found[layer]) for layer in ("experts_up", "experts_down")) * 2 * 2
    shared = sum(held(layer) for layer_name, layer in found.items() if layer_name.startswith("shared")) * tensor_par
    router = architecture.hidden * architecture.experts.routed
    assert routed + shared + router == expert_weights(architecture)
    assert ("shared_up" in found) == (architecture.experts.shared > 0)


def test_every_token_passes_every_layer_and_as_many_experts_as_it_visits() -> None:
    case = one("mixtral-8x7B", 1, expert_par=4)
    tokens = 2 * float(case.model.seq_size)
    for layer in (*attention_layers(case).values(), *feedforward_layers(case).values(), head_layer(case)):
        assert layer.m == tokens
    # Two of eight experts per token; four ranks share the experts and, together, the tokens of four.
    up = expert_layers(case)["experts_up"]
    assert up.count == 2
    assert up.m * up.count == 2 * tokens


def test_rows_with_and_without_an_optional_layer_stand_together() -> None:
    """A table of measured runs mixes models: the layer is there, and its time counts where there is one."""
    shared = np.array([0.0, 1.0])
    case = one("deepseek-v3", 1, expert_par=8)
    values = {name: getattr(case.model, name) for name in case.model.__dataclass_fields__}
    mixed = Case(
        type(case.model).of(values | {"shared_experts": shared, "query_rank": shared * 1536.0}),
        case.accelerator,
        case.layout,
        case.software,
    )
    assert "shared_up" in expert_layers(mixed)
    assert attention_layers(mixed)["query_up"].k.tolist() == [7168.0, 1536.0]
