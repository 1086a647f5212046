"""Models with a pattern of layers: written for frameworks and read back, or refused by the layer that is at fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import models
from engine import launch
from engine.launch.conversion import complete
from models import Model

PUBLISHED = Path(__file__).parents[2] / "models" / "data" / "published_configurations.json"
EXECUTION = {
    "tensor_par": 1,
    "pipeline_par": 2,
    "data_par": 4,
    "batch_size": 32,
    "microbatch_size": 1,
    "optimizer_sharding": True,
    "activation_recompute": "full",
}
ONE_STAGE = {**EXECUTION, "pipeline_par": 1}


def published(name: str) -> Model:
    rows = json.loads(PUBLISHED.read_text("utf-8"))["rows"]
    config = next(row["config"] for row in rows if row["name"] == name)
    return models.load_document(config, where="config.json", name=name)


def model_of(blocks: list[dict[str, Any]], order: list[int], **more: Any) -> Model:
    """A model of blocks and the places of these in the order of its layers."""
    runs: list[dict[str, int]] = []
    for block in order:
        if runs and runs[-1]["block"] == block:
            runs[-1]["count"] += 1
        else:
            runs.append({"block": block, "count": 1})
    layers = {"hidden": 1_024, "vocab": 32_000, "tied_embeddings": False, **more, "blocks": blocks, "runs": runs}
    document = {"format": "shardscape-model/1", "name": "mixed", "seq_size": 4_096, "layers": layers}
    return models.load_document(document)


ATTENTION = {"kind": "attention", "heads": 16, "kv_heads": 4, "head_dim": 64}
MAMBA = {"kind": "mamba2", "heads": 32, "head_dim": 64, "states": 128, "groups": 8, "kernel": 4, "chunk": 128}
DELTA = {
    "kind": "gated_deltanet",
    "key_heads": 8,
    "value_heads": 16,
    "key_head_dim": 128,
    "value_head_dim": 128,
    "kernel": 4,
}
LATENT = {
    "kind": "latent_attention",
    "heads": 16,
    "q_rank": 256,
    "kv_rank": 128,
    "nope_head_dim": 64,
    "rope_head_dim": 32,
    "v_head_dim": 64,
}
DENSE = {"kind": "feedforward", "width": 2_816}
EXPERTS = {"kind": "experts", "routed": 16, "top_k": 2, "width": 512}


def alone(layer: dict[str, Any]) -> dict[str, Any]:
    side = "feedforwards" if layer["kind"] in ("feedforward", "experts") else "mixers"
    return {side: [layer], "norms": 1}


def pair(mixer: dict[str, Any], feedforward: dict[str, Any]) -> dict[str, Any]:
    return {"mixers": [mixer], "feedforwards": [feedforward]}


@st.composite
def patterns(draw: st.DrawFn) -> Model:
    """A model that Megatron-LM can run."""
    groups = draw(st.sampled_from([1, 2, 8]))
    bias = draw(st.booleans())
    attention: dict[str, Any] = {
        **ATTENTION,
        "kv_heads": draw(st.sampled_from([1, 2, 4, 16])),
        "qk_norm": draw(st.sampled_from(["none", "head", "weightless"])),
        "gate": draw(st.sampled_from(["none", "element"])),
        "sinks": draw(st.booleans()),
        "qkv_bias": bias or draw(st.booleans()),
        "output_bias": bias,
    }
    latent: dict[str, Any] = {**LATENT, "q_rank": draw(st.sampled_from([None, 256]))}
    if latent["q_rank"] and draw(st.booleans()):
        latent["indexer"] = {"heads": 8, "head_dim": 64, "top_k": 512}
    mamba = {**MAMBA, "groups": groups, "states": draw(st.sampled_from([16, 128]))}
    delta = {**DELTA, "key_heads": draw(st.sampled_from([4, 16])), "kernel": draw(st.sampled_from([2, 4]))}
    gated = draw(st.booleans())
    shared = 0 if bias else draw(st.sampled_from([0, 512]))
    experts = {
        **EXPERTS,
        "gated": gated,
        "bias": bias,
        "router_bias": bias,
        "shared_width": shared,
        "shared_gate": shared > 0 and draw(st.booleans()),
        "latent": draw(st.sampled_from([None, 256])),
    }
    dense = {**DENSE, "gated": gated, "bias": bias}
    mixers = [attention if bias or draw(st.booleans()) else latent, mamba, delta]
    rest = [dense, experts]
    if draw(st.booleans()):
        blocks = [pair(mixer, each) for mixer in mixers for each in rest]
    else:
        blocks = [alone(each) for each in (*mixers, *rest)]
    order = draw(st.lists(st.integers(0, len(blocks) - 1), min_size=8, max_size=24))
    used = sorted(set(order))
    tied, norm = draw(st.booleans()), draw(st.sampled_from([1, 2]))
    places = [used.index(each) for each in order]
    return model_of([blocks[each] for each in used], places, tied_embeddings=tied, norm_width=norm)


def parameters_of_stages(model: Model, execution: dict[str, Any]) -> list[int]:
    """Weights of the layers of every stage of the model."""
    from engine.cost_models.registry import named

    assert model.layers is not None
    layers = [run.block for run in model.layers.runs for _ in range(run.count)]
    weights = [
        block.norms * model.layers.hidden + sum(each.count_parameters(model.layers.hidden) for each in block.layers)
        for block in model.layers.blocks
    ]
    ranks, chunks = execution["pipeline_par"], execution["pipeline_interleaving"]
    cut = named("calibrated").stage_cut(model, ranks, chunks, execution.get("stage_layout", "even")).blocks
    sizes = cut if ranks > 1 else (len(layers),)
    return [
        sum(weights[each] for each in layers[sum(sizes[:stage]) : sum(sizes[: stage + 1])])
        for stage in range(len(sizes))
    ]


@settings(max_examples=150, deadline=None)
@given(
    model=patterns(),
    pipeline=st.sampled_from([1, 2, 4]),
    chunks=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "full", "attn_only"]),
)
def test_a_pattern_that_megatron_runs_reads_back(model: Model, pipeline: int, chunks: int, recompute: str) -> None:
    interleaving = chunks if pipeline > 1 else 1
    execution = {
        **EXECUTION,
        "pipeline_par": pipeline,
        "pipeline_interleaving": interleaving,
        "activation_recompute": recompute,
        "batch_size": 64,
        "attention_kernel": "native",
    }
    written = launch.write(execution, model, framework="megatron")
    assert "pretrain_hybrid.py" in written.text
    pattern = written.flags["--hybrid-layer-pattern"]
    assert pattern.count("|") == (pipeline * interleaving - 1 if pipeline > 1 else 0)
    found = launch.read_text(written.text, "launch.sh")
    assert (found.unread, found.refused, found.left) == ((), "", ())
    assert not [each for each in found.not_modelled if "pattern" in each or "--spec" in each]
    back = launch.model_of_shape(found.model)
    counts = ("total", "active", "products", "cache_bytes_per_token", "state_bytes_per_sequence")
    assert [getattr(back.counts, each) for each in counts] == [getattr(model.counts, each) for each in counts]
    expected = complete(execution)
    skipped = {"stage_layout", "schedule", "tensor_par_net", "pipeline_par_net", "data_par_net", "fused_activation"}
    told = {name: value for name, value in found.execution.items() if name not in skipped}
    multiquery = "multiquery" if found.model.get("kv_heads") == 1 else "multihead"
    assert told == {name: expected[name] for name in told} | {"attention_type": multiquery}
    assert parameters_of_stages(back, found.execution) == parameters_of_stages(model, expected)


@pytest.mark.parametrize(
    ("name", "beginning", "flags"),
    [
        ("qwen3-next-80B-A3B", "GEGEGE*E", {"--linear-num-key-heads": 16, "--attention-output-gate": True}),
        ("nemotron-3-super-120B-A12B", "MEMEMEM*E", {"--mamba-num-groups": 8, "--moe-latent-size": 1024}),
        ("nemotron-h-56B", "M-M-M-M*-", {"--mamba-state-dim": 256, "--mamba-num-heads": 256}),
        ("granite-4.0-h-small", "MEMEMEMEME*E", {"--mamba-num-groups": 1, "--num-experts": 72}),
        ("bamba-9B", "M-M-M-M-M-M-M-M-M-*-", {"--mamba-num-heads": 128}),
        ("mamba2-2.7B", "MMMM", {"--mamba-head-dim": 64}),
    ],
)
def test_published_models_keep_their_counts(name: str, beginning: str, flags: dict[str, Any]) -> None:
    model = published(name)
    written = launch.write(EXECUTION, model, framework="megatron")
    assert str(written.flags["--hybrid-layer-pattern"]).startswith(beginning)
    assert {flag: written.flags.get(flag) for flag in flags} == flags
    back = launch.model_of_shape(launch.read_text(written.text, "launch.sh").model)
    assert back.counts is not None
    assert model.counts is not None
    assert (back.counts.total, back.counts.active) == (model.counts.total, model.counts.active)
    assert back.counts.layer_kinds == model.counts.layer_kinds


@pytest.mark.parametrize(
    ("framework", "name", "told"),
    [
        ("megatron", "jamba-v0.1", "layer 1 of jamba-v0.1 (Mamba-1 with MLP): it has no Mamba-1"),
        ("megatron", "minimax-M1", "it has no lightning attention"),
        ("megatron", "kimi-linear-48B-A3B", "it has no Kimi delta attention"),
        ("megatron", "falcon-h1-7B", "normed false"),
        ("megatron", "mimo-v2-flash", "values of 128 elements beside keys of 192"),
        ("megatron", "arctic-480B", "side by side"),
        ("megatron-bridge", "qwen3-next-80B-A3B", "export to Megatron-LM"),
        (
            "torchtitan",
            "granite-4.0-h-small",
            "layer 1 of granite-4.0-h-small (Mamba-2 with experts): it has no Mamba-2",
        ),
        ("torchtitan", "qwen3-next-80B-A3B", "qwen35_27b"),
        ("maxtext", "nemotron-h-56B", "it has no Mamba-2"),
        ("maxtext", "qwen3.5-27B", "by name only"),
    ],
)
def test_a_layer_that_a_framework_cannot_run_is_named(framework: str, name: str, told: str) -> None:
    with pytest.raises(launch.LaunchError, match=r"\.$") as problem:
        launch.write(ONE_STAGE, published(name), framework=framework)
    assert told in str(problem.value)


@pytest.mark.parametrize(
    ("framework", "name", "flags"),
    [
        ("torchtitan", "qwen3.5-27B", {"module": "qwen3_5", "config": "qwen35_27b"}),
        ("maxtext", "qwen3-next-80B-A3B", {"model_name": "qwen3-next-80b-a3b"}),
        ("maxtext", "deepseek-v4-flash", {"model_name": "deepseek4-284b"}),
        ("deepspeed", "nemotron-h-56B", {"train_batch_size": 32}),
    ],
)
def test_models_that_a_framework_has_by_name_are_written(framework: str, name: str, flags: dict[str, Any]) -> None:
    written = launch.write(ONE_STAGE, published(name), framework=framework)
    assert {key: written.flags[key] for key in flags} == flags


MIXED = [alone(ATTENTION), alone(MAMBA), alone(DENSE)]


@pytest.mark.parametrize(
    ("blocks", "more", "told"),
    [
        (
            [*MIXED, alone({**ATTENTION, "heads": 8})],
            {},
            "--num-attention-heads for all layers; those of mixed need 16 and 8",
        ),
        ([*MIXED, alone({**EXPERTS, "gated": False})], {}, "--swiglu for all layers"),
        ([*MIXED, alone({**ATTENTION, "window": 512})], {}, "no windows in a pattern of layers"),
        ([alone({**MAMBA, "kernel": 3})], {}, "kernel 3"),
        ([*MIXED, alone(LATENT)], {}, "not both"),
        ([{**pair(ATTENTION, DENSE), "norms": 1}], {}, "1 norms for 2 layers"),
        (MIXED, {"other_parameters": 7}, "other_parameters"),
        (MIXED, {"norm_width": 0}, "norm_width 0"),
    ],
)
def test_values_that_megatron_cannot_say_are_named(
    blocks: list[dict[str, Any]], more: dict[str, Any], told: str
) -> None:
    model = model_of(blocks, list(range(len(blocks))), **more)
    with pytest.raises(launch.LaunchError, match=r"\.$") as problem:
        launch.write(ONE_STAGE, model, framework="megatron")
    assert told in str(problem.value)


def test_an_indexer_gathers_keys_between_context_ranks() -> None:
    sparse = {**LATENT, "indexer": {"heads": 8, "head_dim": 64, "top_k": 512}}
    execution = {**ONE_STAGE, "context_par": 2, "data_par": 2}
    written = launch.write(execution, model_of([pair(sparse, DENSE)], [0] * 4), framework="megatron")
    assert written.flags["--cp-comm-type"] == ["allgather"]
    assert written.flags["--hybrid-layer-pattern"] == "D-D-D-D-"
    with pytest.raises(launch.LaunchError, match="3 groups of Mamba-2 on a tensor rank and context parallel 2"):
        launch.write(execution, model_of([alone({**MAMBA, "heads": 24, "groups": 3})], [0]), framework="megatron")


def test_groups_and_heads_limit_tensor_ranks() -> None:
    limits = [(MAMBA | {"groups": 2}, "--mamba-num-groups 2"), (DELTA | {"key_heads": 2}, "--linear-num-key-heads 2")]
    for layer, told in limits:
        with pytest.raises(launch.LaunchError, match=f"{told} is no multiple of 4"):
            launch.write({**ONE_STAGE, "tensor_par": 4}, model_of([alone(layer)], [0] * 8), framework="megatron")


FLAGS = {
    "--hidden-size": 1_024,
    "--num-attention-heads": 16,
    "--seq-length": 4_096,
    "--micro-batch-size": 1,
    "--global-batch-size": 8,
    "--pipeline-model-parallel-size": 2,
}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"--hybrid-layer-pattern": "M*XM"}, "has 'X'; its letters are M, G"),
        ({"--hybrid-layer-pattern": "M*+-"}, "has * and +"),
        ({"--hybrid-layer-pattern": "|"}, "has 0 layers"),
        ({"--hybrid-layer-pattern": "MMEM"}, "has E, which needs --num-experts"),
        ({"--hybrid-layer-pattern": "M*/M/*"}, "unlike prediction layers"),
        ({"--hybrid-layer-pattern": "MM", "--mamba-num-heads": 12}, "8 groups for 12 Mamba-2 heads"),
        ({"--hybrid-layer-pattern": "MM", "--mamba-state-dim": 10**6}, "states is 1000000; it must be a whole number"),
        ({"--hybrid-layer-pattern": "ME" * 10_001, "--num-experts": 8}, "has 20,002 layers"),
        (
            {
                "--experimental-attention-variant": "gated_delta_net",
                "--num-layers": 8,
                "--linear-attention-freq": "[1,0]",
            },
            "--linear-attention-freq lists 2 layers for --num-layers 8",
        ),
    ],
)
def test_patterns_that_megatron_refuses_are_one_sentence(flags: dict[str, Any], told: str) -> None:
    with pytest.raises(launch.LaunchError, match=r"\.$") as problem:
        launch.read_flags("megatron", {**FLAGS, **flags}, gpus=8)
    assert told in str(problem.value)


def test_what_the_parser_changes_silently_is_said() -> None:
    pattern = {"--hybrid-layer-pattern": "M-M*M-M*/MM", "--num-layers": 4}
    found = launch.read_flags("megatron", {**FLAGS, **pattern}, gpus=8)
    assert found.model["layers"] == 8
    assert any("--num-layers 4 has no effect: the pattern has 8 layers" in each for each in found.remarks)
    assert any("prediction layers" in each for each in found.not_modelled)
    assert any("divided evenly" in each for each in found.remarks)
    odd = launch.read_flags("megatron", {**FLAGS, "--hybrid-layer-pattern": "M|M|M"}, gpus=8)
    assert odd.refused
    both = {"--hybrid-layer-pattern": "M|M", "--num-virtual-stages-per-pipeline-rank": 2}
    assert "excludes a pattern" in launch.read_flags("megatron", {**FLAGS, **both}, gpus=8).refused


def test_the_deprecated_flag_and_the_variant_of_gpt_models_are_read() -> None:
    old = launch.read_flags("megatron", {**FLAGS, "--hybrid-override-pattern": "MM-*|MM-*"}, gpus=8)
    new = launch.read_flags("megatron", {**FLAGS, "--hybrid-layer-pattern": "MM-*|MM-*"}, gpus=8)
    assert old.model == new.model
    variant = {
        "--experimental-attention-variant": "gated_delta_net",
        "--num-layers": 8,
        "--linear-attention-freq": 4,
        "--num-experts": 16,
        "--attention-output-gate": True,
    }
    layers = launch.model_of_shape(launch.read_flags("megatron", {**FLAGS, **variant}, gpus=8).model).layers
    assert layers is not None
    assert layers.describe() == "2 x (3 gated delta net with experts, attention with experts)"


def test_scans_are_not_split_by_deepspeed() -> None:
    execution = {**ONE_STAGE, "tensor_par": 2, "data_par": 2}
    with pytest.raises(launch.LaunchError, match="has Mamba-2 layers; choose tensor_par 1"):
        launch.write(execution, published("nemotron-h-56B"), framework="deepspeed")


def test_a_short_pattern_is_not_mistaken_for_another_model() -> None:
    model = model_of([pair(DELTA, DENSE), pair(ATTENTION, DENSE)], [0, 0, 0, 1] * 2)
    assert launch.named_shape(launch.shape_of(model)) is None


def test_options_of_stages_are_the_pattern() -> None:
    execution = {"pipeline_par": 2, "pipeline_interleaving": 1, "stage_layout": "even"}
    model = model_of([pair(DELTA, DENSE), pair(ATTENTION, DENSE)], [0, 0, 0, 1] * 2)
    assert launch.stage_options(model, execution) == "--hybrid-layer-pattern='G-G-G-*-|G-G-G-*-'"
    assert launch.stage_options(published("jamba-v0.1"), execution) == ""


def test_an_indexer_of_all_layers_is_read() -> None:
    sparse = {"--dsa-indexer-n-heads": 64, "--dsa-indexer-head-dim": 128, "--dsa-indexer-topk": 2_048}
    written = launch.write(ONE_STAGE, "deepseek-v3.2", framework="megatron")
    flags = {**written.flags, "--experimental-attention-variant": "dsa", **sparse}
    found = launch.read_flags("megatron", flags, gpus=4)
    assert launch.model_of_shape(found.model).name == "deepseek-v3.2"
    assert not [each for each in found.not_modelled if "dsa" in each]
    shared = launch.read_flags("megatron", {**flags, "--dsa-indexer-topk-freq": 4}, gpus=4)
    assert "index_top_k" not in shared.model
    assert [each for each in shared.not_modelled if "--experimental-attention-variant dsa" in each]


def test_named_models_keep_the_limits_of_their_framework() -> None:
    with pytest.raises(launch.LaunchError, match="no context parallelism for qwen3_5; choose context_par 1"):
        launch.write({**ONE_STAGE, "context_par": 2, "data_par": 2}, published("qwen3.5-27B"), framework="torchtitan")
    with pytest.raises(launch.LaunchError, match="Choose pipeline_par 1"):
        launch.write(EXECUTION, published("qwen3-next-80B-A3B"), framework="maxtext")
