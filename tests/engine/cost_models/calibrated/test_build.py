"""Cases from models, systems and columns of executions."""

from __future__ import annotations

import numpy as np
import pytest

import hardware
import models
from engine.cost_models.calibrated import (
    accelerator_of,
    calibrated,
    case_of,
    memory_use,
    model_shapes,
    parameters,
    step_times,
    system_named,
)
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, LAUNCHES, RECOMPUTES
from engine.cost_models.calibrated.physics.pipeline.stages import blocks_by_kind
from engine.cost_models.calibrated.physics.weights import (
    attention_weights,
    dense_weights,
    embedding_weights,
    expert_weights,
    router_weights,
    shared_weights,
)
from engine.cost_models.calibrated.words import WORDS
from models.parameters import parameters as published

ROWS = {"tensor_par": np.array([1, 2]), "pipeline_par": 2, "data_par": 4, "microbatch_size": 1, "batch_size": 64}


def test_calculon_fields_are_read() -> None:
    words = {
        "datatype": np.array(["float8", "bfloat16"]),
        "activation_recompute": np.array(["full", "attn_only"]),
        "tensor_par_comm_type": np.array(["ar", "rs_ag"]),
        "tensor_par_overlap": np.array(["none", "ring"]),
        "data_par_overlap": np.array([True, False]),
        "optimizer_sharding": np.array([False, True]),
    }
    c = case_of(models.load("llama-3.1-8B"), hardware.load("h100_80g_sxm"), {**ROWS, **words})
    assert c.layout.linear_bits.tolist() == [8, 16]
    assert [RECOMPUTES[int(kind)] for kind in c.layout.recompute] == ["full", "selective"]
    assert c.layout.sequence_par.tolist() == [0, 1]
    assert c.layout.zero_stage.tolist() == [0, 1]
    assert c.software.overlap_tensor.tolist() == [0, 1]
    assert c.software.overlap_data.tolist() == [1, 0]
    assert ATTENTION_KERNELS[int(c.software.attention_kernel)] == "native"


def test_own_fields_have_precedence_and_words_are_checked() -> None:
    c = case_of(models.load("gpt3-175B"), hardware.load("a100_80g"), {**ROWS, "recompute": "half", "launch": "graphs"})
    assert RECOMPUTES[int(c.layout.recompute)] == "half"
    assert LAUNCHES[int(c.software.launch)] == "graphs"
    assert ATTENTION_KERNELS[int(c.software.attention_kernel)] == "flash2"
    with pytest.raises(ValueError, match=r"launch is 'fast'; it must be one of eager"):
        case_of(models.load("gpt3-175B"), hardware.load("a100_80g"), {**ROWS, "launch": "fast"})
    with pytest.raises(KeyError, match="pipeline_par"):
        case_of(models.load("gpt3-175B"), hardware.load("a100_80g"), {"tensor_par": 1})


def test_every_library_model_with_a_decoder_shape_has_its_parameters() -> None:
    for name in models.plain_names():
        architecture = models.load(name).architecture
        assert architecture is not None
        # Projections of positions are left out, and an indexer makes a pattern of layers.
        if architecture.positions == "relative" or architecture.sparse_attention is not None:
            continue
        shapes = model_shapes(models.load(name))
        held = blocks_by_kind(shapes)
        dense, sparse = float(held[0] + held[1]), float(held[2] + held[3])
        count = float(shapes.num_blocks) * attention_weights(shapes) + dense * dense_weights(shapes)
        count = count + sparse * (expert_weights(shapes) + shared_weights(shapes) + router_weights(shapes))
        count = count + embedding_weights(shapes) * (1 if shapes.tied_embeddings else 2)
        # Biases, norms, indexers and learned positions are not in the shapes.
        assert float(count) == pytest.approx(published(architecture), rel=0.03), name


def test_every_library_system_evaluates() -> None:
    for name in hardware.names():
        system = hardware.load(name)
        c = case_of(models.load("llama-3.1-8B"), system, ROWS)
        seconds = step_times(c, parameters()).step
        assert np.isfinite(seconds).all(), name
        assert (seconds > 0).all(), name
        assert (memory_use(c).peak > 0).all(), name
        assert accelerator_of(system)["flops16"] >= 1e13, name
        modelled = ("volta", "ada", "cdna2", "cdna3", "gaudi", "trainium")
        known = system.accelerator is not None and not system.accelerator.generation.startswith(modelled)
        assert calibrated(system) == known, name


def test_accelerators_are_found_by_published_and_library_name() -> None:
    assert system_named("H100-80GB-SXM") == system_named("h100_80g_sxm")
    assert system_named("Abacus") is None


def test_what_the_shapes_cannot_say_is_told() -> None:
    """Compared with what the published architectures have; every model has biases or norms."""
    for name in models.plain_names():
        found, told = models.load(name).architecture, WORDS.neglected(models.load(name))
        if found is None:
            assert len(told) == 1
            continue
        text = " ".join(told)
        assert text.startswith("Biases and the weights of norms")
        assert ("multi-token" in text) == (found.prediction_layers > found.trained_prediction_layers)
        assert ("sparse latent attention" in text) == (found.sparse_attention is not None)
        assert ("Experts" in text) == (found.experts is not None)
        assert (f"of {found.max_seq or 0:,} positions" in text) == (found.positions == "learned")
        assert ("one after the other" in text) == bool(found.parallel_residual)
        assert ("queries and keys" in text) == bool(found.qk_norm)
    assert WORDS.neglected(models.load("deepseek-v3.2"))[-1] == "The block for multi-token prediction is left out."
