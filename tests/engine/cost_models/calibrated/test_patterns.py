"""Models with a pattern of layers: equal to plain models where they describe the same, and by their own laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
import hardware
import models
from engine.cost_models.calibrated import block_level, case_of, memory_use, parameters, step_times
from engine.cost_models.calibrated.physics.layers.operations import STAGES, block_operations, blocks_of
from engine.planners.layerwise.library_models import library_profile
from models import Model
from models.patterns import pattern_of
from tests.engine.cost_models.calibrated.small import HYBRID, hybrid_model, scenario

SYSTEM = "h100_80g_sxm"
PLAIN = ("llama-3-70B", "gpt-oss-120B", "deepseek-v2-lite", "qwen3-30B-A3B", "gemma-2-27B", "mixtral-8x7B")


def as_pattern(model: Model) -> Model:
    """The same model, described by its layers."""
    assert model.architecture is not None
    document = models.to_document(model)
    kept = {key: value for key, value in document.items() if key not in ("architecture", "calculon")}
    layers = pattern_of(model.architecture).model_dump(mode="json", exclude_defaults=True)
    return models.load_document({**kept, "layers": layers}, model.name)


def executions(model: Model, rows: int) -> pd.DataFrame:
    """Random executions of a model that has at most 8 ways of tensor and 4 of expert parallelism."""
    random = np.random.default_rng(7)
    tensor, pipeline = random.choice([1, 2, 4], rows), random.choice([1, 2, 4], rows)
    experts = random.choice([1, 2, 4], rows) if models.dimensions(model).experts else np.ones(rows, int)
    micro = random.choice([1, 2], rows)
    return pd.DataFrame(
        {
            "tensor_par": tensor,
            "pipeline_par": pipeline,
            "data_par": np.full(rows, 4),
            "context_par": random.choice([1, 2], rows),
            "expert_par": experts,
            "expert_tensor_par": np.ones(rows, int),
            "microbatch_size": micro,
            "batch_size": 4 * micro * random.choice([4, 9], rows),
            "recompute": random.choice(["none", "selective", "full", "modules", "half"], rows),
            "launch": random.choice(["fused", "graphs", "eager", "partial_graphs"], rows),
            "attention_kernel": random.choice(["unfused", "native", "flash2"], rows),
            "overlap_expert": random.choice([0.0, 1.0], rows),
        }
    )


@pytest.mark.parametrize("name", PLAIN)
def test_a_pattern_of_plain_blocks_takes_what_the_plain_model_takes(name: str) -> None:
    plain = models.load(name)
    table, system = executions(plain, 80), hardware.load(SYSTEM)
    one, other = (
        (engine_times(case_of(each, system, table)), memory_use(case_of(each, system, table)))
        for each in (plain, as_pattern(plain))
    )
    np.testing.assert_allclose(other[0], one[0], rtol=1e-9)
    # A plain model's temporaries are of its ordinary MLP, also where every block has experts.
    for kind in ("weights", "gradients", "optimizer", "activations", "logits"):
        np.testing.assert_allclose(getattr(other[1], kind), getattr(one[1], kind), rtol=1e-9, err_msg=kind)


def engine_times(case: Any) -> Any:
    return np.broadcast_to(step_times(case, parameters()).step, (80,))


def test_all_ranks_together_hold_every_weight_of_the_products() -> None:
    """Weights of a processor, times the ranks that share them, are what the published modules count, vectors aside."""
    model, system = hybrid_model(), hardware.load(SYSTEM)
    assert model.layers is not None
    hidden = model.layers.hidden
    products = [
        product
        for block, count in model.layers.counted_blocks()
        for _ in range(count)
        for layer in block.layers
        for product in layer.products(hidden)
    ]
    for tensor, experts in ((1, 1), (2, 2), (4, 4)):
        table = {"tensor_par": tensor, "pipeline_par": 1, "data_par": 4, "expert_par": experts, "expert_tensor_par": 1}
        case = case_of(model, system, {**table, "microbatch_size": 1, "batch_size": 4, "optimizer_sharding": 0})
        here = float(memory_use(case).weights) / 2.0
        expected = 2.0 * model.layers.vocab * hidden / tensor
        for each in products:
            if each.held > 1:
                expected += each.parameters / experts
            elif each.split == "none":
                expected += each.parameters
            else:
                expected += each.parameters / tensor
        # Two heads of keys and values on four ranks: each is held twice.
        expected += 2 * 2 * (tensor == 4) * 128 * 2 * hidden / 4 * 2 / 2
        assert here == pytest.approx(expected, rel=1e-12)


def test_degrees_that_layers_cannot_be_divided_by_are_named() -> None:
    chosen = scenario(hybrid_model(), hardware.load(SYSTEM), num_procs=16, max_batch_size=16)
    table = chosen.space.table(np.arange(1))
    table = pd.concat([table] * 2, ignore_index=True)
    table["tensor_par"], table["data_par"], table["pipeline_par"], table["context_par"] = [8, 4], [2, 2], 1, [1, 2]
    table[["expert_par", "expert_tensor_par", "batch_size", "microbatch_size"]] = 1, 1, 2, 1
    found = chosen.evaluate(table)
    assert found["reason"].tolist() == ["layer_not_divisible", "layer_not_divisible"]
    assert "2 Mamba-2 groups" in found["reason_text"][0]
    assert max(chosen.space.table(np.arange(chosen.space.total))["tensor_par"]) <= 2


def test_calculon_names_the_layers_that_it_cannot_represent() -> None:
    with pytest.raises((engine.CostModelError, models.ModelFileError), match="gated delta net"):
        engine.best(hybrid_model(), SYSTEM, num_procs=8, max_batch_size=8, datatype="bfloat16", cost_model="calculon")


@pytest.mark.parametrize("recompute", ["attn_only", "full"])
def test_more_recomputation_never_needs_more_memory(recompute: str) -> None:
    system, model = hardware.load(SYSTEM), hybrid_model()
    table = executions(model, 80).drop(columns="recompute")
    words = {"attn_only": "selective", "full": "full"}
    plain = memory_use(case_of(model, system, {**table, "recompute": "none"}))
    saved = memory_use(case_of(model, system, {**table, "recompute": words[recompute]}))
    assert (np.asarray(saved.activations) <= np.asarray(plain.activations) * (1 + 1e-12)).all()


def test_linear_attention_grows_with_the_sequence_and_attention_with_its_square() -> None:
    """Tokens stay as many: only attention over all of them takes longer in longer sequences."""
    linear = {**HYBRID, "blocks": [HYBRID["blocks"][0]], "runs": [{"block": 0, "count": 8}]}
    full = {**HYBRID, "blocks": [HYBRID["blocks"][1]], "runs": [{"block": 0, "count": 8}]}
    system = hardware.load(SYSTEM)
    table = {"tensor_par": 1, "pipeline_par": 1, "data_par": 1, "expert_par": 1, "expert_tensor_par": 1}

    def seconds(pattern: dict[str, Any], tokens: int, samples: int) -> float:
        model = hybrid_model(tokens, **{key: pattern[key] for key in ("blocks", "runs")})
        case = case_of(model, system, {**table, "microbatch_size": samples, "batch_size": samples})
        return float(engine_times(case)[0])

    assert seconds(linear, 65_536, 1) == pytest.approx(seconds(linear, 4_096, 16), rel=1e-3)
    assert seconds(full, 65_536, 1) > 1.5 * seconds(full, 4_096, 16)


def test_operations_of_a_block_add_up_to_it() -> None:
    """Layer by layer, without waiting for the host; kinds of blocks by their titles."""
    model, system = hybrid_model(), hardware.load(SYSTEM)
    table = {"tensor_par": 2, "pipeline_par": 1, "data_par": 4, "context_par": 2, "expert_par": 2}
    table |= {"expert_tensor_par": 1, "microbatch_size": 2, "batch_size": 8, "messages": 0}
    one = case_of(model, system, table)
    level = block_level(one, parameters())
    titles = blocks_of(one.model)
    assert titles == ("Gated delta net with experts", "Attention with experts", "Mamba-2", "MLP")
    for kind, block in level.kinds.items():
        found = block_operations(one, parameters(), titles[kind.position])
        found = found[found["engine"] != "host"]
        seconds = sum(float(found[f"{stage}_processing_time"].sum()) for stage in STAGES)
        assert seconds == pytest.approx(float(block.forward + block.backward - block.launch), rel=1e-9)


def test_an_indexer_is_computed_by_every_tensor_parallel_rank() -> None:
    """Twice the ranks halve attention to the chosen tokens, not the scores of the indexer over the whole context."""
    model = models.edited(models.load("deepseek-v3.2"), {"seq_size": 65_536})
    system = hardware.load(SYSTEM)

    def attention(tensor: int) -> float:
        table = {"tensor_par": tensor, "pipeline_par": 1, "data_par": 1, "expert_par": 1, "expert_tensor_par": 1}
        case = case_of(model, system, {**table, "microbatch_size": 1, "batch_size": 1, "recompute": "full"})
        return float(np.ravel(step_times(case, parameters()).attention)[0])

    assert 0.5 < attention(8) / attention(4) < 0.95


@pytest.mark.parametrize("name", ["llama-3-8B", "mixtral-8x7B"])
def test_a_pattern_of_plain_blocks_is_planned_as_the_plain_model(name: str) -> None:
    """Layer by layer: each block's seconds are the plain model's, and its weights have vectors besides."""
    plain = models.load(name)
    (one, _), (other, _) = (library_profile(model, SYSTEM, tensor_par=2) for model in (plain, as_pattern(plain)))
    assert [each.id for each in other.layers] == [each.id for each in one.layers]
    for mine, its in zip(other.layers, one.layers, strict=True):
        assert (mine.forward, mine.backward) == pytest.approx((its.forward, its.backward), rel=1e-6, abs=1e-9)
        assert mine.parameters == pytest.approx(its.parameters, rel=1e-3)


def test_unlike_blocks_of_a_pattern_make_unlike_layers_of_a_plan() -> None:
    profile, _ = library_profile(hybrid_model(), SYSTEM)
    blocks = [each for each in profile.layers if each.id.startswith("block")]
    assert len(blocks) == hybrid_model().layers.layers  # type: ignore[union-attr]
    assert len({round(each.forward, 9) for each in blocks}) == 4


PUBLISHED = {
    "dgxc 25.05": ("nemotron-h-56B", "h100_80g_sxm", "float8", 8, 4, 1, 1, 96, "fused", 15.119, 0.1),
    "Bridge 26.06.01, GB300": (
        "nemotron-3-nano-30B-A3B",
        "gb300_279g_nvl72",
        "mxfp8",
        1,
        8,
        8,
        4,
        512,
        "partial_graphs",
        12.8,
        0.15,
    ),
    "Bridge 26.06.01, GB200": (
        "nemotron-3-nano-30B-A3B",
        "gb200_186g_nvl72",
        "mxfp8",
        1,
        8,
        8,
        2,
        512,
        "partial_graphs",
        15.059,
        0.15,
    ),
    "Bridge 26.06, B300": (
        "nemotron-3-nano-30B-A3B",
        "b300_270g_sxm",
        "mxfp8",
        1,
        8,
        8,
        4,
        512,
        "partial_graphs",
        14.05,
        0.15,
    ),
}
"""Runs of models with state spaces at 8,192 tokens: model, system, datatype, TP, DP, EP, microbatch, batch, launch,
seconds of a step, and how far the prediction may be off. Sources: NVIDIA/dgxc-benchmarking v25.05, nemotronh/README.md,
by which the bandwidth of scans was chosen; NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md, which
nothing is fitted to."""


@pytest.mark.parametrize("run", PUBLISHED.values(), ids=list(PUBLISHED))
def test_published_runs_of_state_spaces_take_about_as_long_as_predicted(run: tuple[Any, ...]) -> None:
    name, system, datatype, tensor, data, experts, micro, batch, launch, seconds, off = run
    model = models.edited(models.load(name), {"seq_size": 8192})
    table = {"tensor_par": tensor, "pipeline_par": 1, "data_par": data, "expert_par": experts, "expert_tensor_par": 1}
    table |= {"microbatch_size": micro, "batch_size": batch, "datatype": datatype, "launch": launch}
    software = {"overlap_data": 1.0, "overlap_tensor": float(tensor > 1), "sequence_par": float(tensor > 1)}
    software |= {
        "token_dispatcher": "deepep" if experts > 1 else "all_to_all",
        "age_years": 1.5 if experts > 1 else 3.0,
    }
    case = case_of(model, hardware.load(system), {**table, **software})
    assert float(np.ravel(step_times(case, parameters()).step)[0]) == pytest.approx(seconds, rel=off)
