"""What is written for a framework cuts the model into the stages that were evaluated, or is refused by a rule of it.

The frameworks' rules are restated here by themselves, one scalar at a time: Megatron-LM d98e8a64
(core/transformer/transformer_block.py, pipeline_parallel_layer_layout.py, core/pipeline_parallel/schedules.py),
torchtitan b5bcd76c (distributed/pipeline_parallel.py, models/common/decoder.py), MaxText e591f30c (configs/types.py).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import engine
import models
from engine import launch
from engine.cost_models.registry import cost_model_of

MODELS = {
    "llama-3-70B": 256,
    "deepseek-v3": 512,
    "qwen3-235B-A22B": 256,
    "kimi-k2": 512,
    "mixtral-8x7B": 96,
    "gemma-2B": 96,
    "gpt3-175B": 256,
    "nemotron-4-340B": 768,
}
"""Models, and GPUs; 61, 94 and 96 layers that few numbers of stages divide, tied embeddings, windows."""
Row = dict[str, Any]


def executions(model: str, number: int) -> list[tuple[engine.Scenario, Row]]:
    """Executions with a pipeline that the search offers, at random."""
    scenario = engine.Scenario.of(
        model,
        "h100_80g_sxm",
        num_procs=MODELS[model],
        max_batch_size=512,
        datatype="bfloat16",
        limits={"pipeline_par": {"min": 2}},
        cost_model="calibrated",
    )
    chance = random.Random(model)
    ids = [chance.randrange(scenario.space.total) for _ in range(number)]
    return [(scenario, row) for row in scenario.space.table(ids).to_dict("records")]


def evaluated_stages(scenario: engine.Scenario, row: Row) -> list[int]:
    """Blocks of every stage of the model, as the cost model times them."""
    account = cost_model_of(scenario).account(scenario.model, scenario.system, row, None)
    stages = account.model_stages(row["pipeline_par"], row["pipeline_interleaving"])
    return [sum(round(part.number) for part in stage.parts if "blocks" in part.name) for stage in stages]


def megatron_stages(flags: Mapping[str, Any], layers: int) -> list[int]:
    """Layers that Megatron builds in every stage of the model."""
    pipeline = int(flags.get("--pipeline-model-parallel-size", 1))
    if listed := flags.get("--pipeline-model-parallel-layout"):
        text = re.sub(r"\(([^)]+)\)\*(\d+)", lambda found: found[1] * int(found[2]), listed.replace(",", ""))
        text = re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), text)
        assert (text[0], text[-1], text.count("E"), text.count("L")) == ("E", "L", 1, 1)
        assert not {"--num-virtual-stages-per-pipeline-rank", "--decoder-first-pipeline-num-layers"} & set(flags)
        return [stage.count("t") for stage in text.split("|")]
    chunks = int(flags.get("--num-virtual-stages-per-pipeline-rank", 1))
    ends = [flags.get(f"--decoder-{which}-pipeline-num-layers") for which in ("first", "last")]
    embedding, loss = (
        int(bool(flags.get(f"--account-for-{which}-in-pipeline-split"))) for which in ("embedding", "loss")
    )
    given = [int(each) for each in ends if each is not None]
    found = []
    for chunk in range(chunks):
        for rank in range(pipeline):
            if given:
                between = pipeline - len(given)
                own = (layers - sum(given)) // between if between else 0
                assert not between or (layers - sum(given)) % between == 0
                own = int(ends[0]) if rank == 0 and ends[0] is not None else own
                own = int(ends[1]) if rank == pipeline - 1 and ends[1] is not None else own
            else:
                assert (layers + embedding + loss) % pipeline == 0
                own = (layers + embedding + loss) // pipeline
            assert own % chunks == 0
            own //= chunks
            own -= embedding * (chunk == rank == 0)
            own -= loss * (chunk == chunks - 1 and rank == pipeline - 1)
            found.append(own)
    return found


def titan_stages(flags: Mapping[str, Any], layers: int) -> list[int]:
    """Layers that torchtitan builds in every stage of the model."""
    pipeline = flags["parallelism.pipeline_parallel_degree"]
    if parts := flags.get("parallelism.module_fqns_per_model_part"):
        assert [name for part in parts for name in part] == [
            "tok_embeddings",
            *(f"layers.{number}" for number in range(layers)),
            "norm",
            "lm_head",
        ]
        assert len(parts) % pipeline == 0
        return [sum(name.startswith("layers.") for name in part) for part in parts]
    first = flags["parallelism.pipeline_parallel_first_stage_less_layers"]
    last = flags["parallelism.pipeline_parallel_last_stage_less_layers"]
    each = flags["parallelism.pipeline_parallel_layers_per_stage"]
    counted = layers + first + last
    stages = -(-counted // each)
    assert stages % pipeline == 0
    least, more = divmod(counted, stages)
    assert max(first, last) <= least
    return [least + (stage < more) - first * (stage == 0) - last * (stage == stages - 1) for stage in range(stages)]


def maxtext_stages(flags: Mapping[str, Any], layers: int) -> list[int]:
    """Layers of every stage of MaxText's pipeline."""
    stages = flags.get("ici_pipeline_parallelism", 1) * flags.get("dcn_pipeline_parallelism", 1)
    each = flags["num_layers_per_pipeline_stage"]
    assert layers % (stages * each) == 0
    return [each] * (layers // each)


def passes(row: Row) -> int:
    return int(row["batch_size"] // row["data_par"] // row["microbatch_size"])


def rounds(row: Row) -> int:
    return max(1, passes(row) // row["pipeline_par"])


def shards(row: Row) -> int:
    return (row["data_par"] if row["zero_stage"] else 1) * row["context_par"] * row["tensor_par"]


Rule = Callable[[Row, Mapping[str, Any], list[int]], bool]
GROUPS = "interleaving needs"
RULES: dict[str, dict[str, Rule]] = {
    "megatron": {
        "interleaving needs at least": lambda row, shape, cut: passes(row) < row["pipeline_par"] < len(cut),
        "interleaving needs microbatches in groups": lambda row, shape, cut: (
            len(cut) > row["pipeline_par"] and passes(row) % row["pipeline_par"] > 0
        ),
        "does not go with full recomputation": lambda row, shape, cut: (
            # Half of the blocks is recomputation "full" of so many layers of a chunk.
            (row["activation_recompute"] == "full" or row["selective_recompute"] == "half")
            and (row["expert_overlap"] or row["schedule"] == "combined_1f1b")
        ),
    },
    "torchtitan": {
        "key and value heads": lambda row, shape, cut: (
            "kv_rank" not in shape and shape["kv_heads"] % row["tensor_par"] > 0
        ),
        "tie the embedding": lambda row, shape, cut: shape["tied_embeddings"],
        "expert ranks": lambda row, shape, cut: shards(row) % row["expert_par"] > 0,
        "DualPipeV of torch needs": lambda row, shape, cut: passes(row) < 2 * row["pipeline_par"],
        "1F1B of torch needs": lambda row, shape, cut: passes(row) < row["pipeline_par"] == len(cut),
        "equal rounds": lambda row, shape, cut: passes(row) % rounds(row) > 0 and len(cut) > row["pipeline_par"],
        "stages between": lambda row, shape, cut: 0 in cut[1:-1],
    },
    "maxtext": {
        "in equal parts": lambda row, shape, cut: (sum(cut) - leading(shape)) % len(cut) > 0,
        "as many layers": lambda row, shape, cut: len(set(cut)) > 1,
        "in multiples of its": lambda row, shape, cut: passes(row) % row["pipeline_par"] > 0,
        "expert ranks": lambda row, shape, cut: row["data_par"] % row["expert_par"] > 0,
    },
}
"""Which rule of a framework a sentence states, and when it holds: execution, shape of the model, blocks by stage."""
RULES["megatron-bridge"] = RULES["megatron"]
STAGES = {"megatron": megatron_stages, "torchtitan": titan_stages, "maxtext": maxtext_stages}


def leading(shape: Mapping[str, Any]) -> int:
    """Layers without experts before those that have some; MaxText's DeepSeek pipelines the others only."""
    frequency = shape.get("moe_layer_freq")
    return frequency.index(1) if isinstance(frequency, list) and 1 in frequency and "kv_rank" in shape else 0


@pytest.mark.parametrize("framework", RULES)
def test_what_is_written_has_the_stages_that_were_evaluated_or_a_rule_refuses_it(framework: str) -> None:
    seen: Counter[str] = Counter()
    for model in MODELS:
        shape = launch.shape_of(models.load(model))
        for scenario, row in executions(model, 40):
            cut = evaluated_stages(scenario, row)
            written: launch.Written | None
            try:
                written = launch.write(row, model, framework=framework)
            except launch.LaunchError as refused:
                written, told = None, str(refused)
            if written is None:
                rule = next((words for words in RULES[framework] if words in told), None)
                assert rule is not None, told
                assert RULES[framework][rule](row, shape, cut), (told, row)
                seen[rule] += 1
                continue
            seen["written"] += 1
            found = launch.read_flags(framework, written.flags, gpus=row["num_procs"])
            assert not found.refused
            layers = sum(cut)
            if framework == "maxtext" and (before := leading(shape)):
                assert any("stage_layout" in each for each in written.not_expressible)
                assert maxtext_stages(written.flags, layers - before)
                continue
            if framework in STAGES:
                assert STAGES[framework](written.flags, layers) == cut, (written.flags, row)
            back = {**row, "stage_layout": "even", **found.execution}
            if framework != "maxtext" and "stage_layout" not in found.left:
                assert evaluated_stages(scenario, back) == cut
            same = (
                "pipeline_par",
                "tensor_par",
                "data_par",
                "context_par",
                "pipeline_interleaving",
                "batch_size",
                "microbatch_size",
                "expert_par",
            )
            assert {name: back[name] for name in same} == {name: row[name] for name in same}
    assert seen["written"] > 40
    assert len(seen) >= 3


def test_layers_and_ends_are_shared_out_as_torchtitan_does_by_default() -> None:
    """94 layers on 48 stages run with torchtitan's defaults: embedding and head count as a layer each."""
    execution = {
        "tensor_par": 4,
        "pipeline_par": 16,
        "pipeline_interleaving": 3,
        "data_par": 4,
        "batch_size": 256,
        "microbatch_size": 1,
        "optimizer_sharding": True,
    }
    flags = launch.write(execution, "qwen3-235B-A22B", framework="torchtitan").flags
    less = [flags[f"parallelism.pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last")]
    assert (less, flags["parallelism.pipeline_parallel_layers_per_stage"]) == ([1, 1], 2)


def test_one_place_makes_the_words_that_pages_commands_and_exports_show() -> None:
    execution = {
        "tensor_par": 1,
        "pipeline_par": 16,
        "pipeline_interleaving": 2,
        "data_par": 32,
        "batch_size": 1024,
        "microbatch_size": 1,
        "stage_layout": "balanced",
        "expert_par": 32,
        "optimizer_sharding": True,
    }
    model = models.load("deepseek-v3")
    written = launch.write(execution, model, framework="megatron")
    told = launch.stage_options(model, execution)
    assert told == f"--pipeline-model-parallel-layout '{written.flags['--pipeline-model-parallel-layout']}'"
    bridge = launch.write(execution, model, framework="megatron-bridge").flags
    assert bridge["model.pipeline_model_parallel_layout"] == written.flags["--pipeline-model-parallel-layout"]
    assert not written.not_expressible or not any("stage_layout" in each for each in written.not_expressible)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--pipeline-model-parallel-layout 'Et*3|t*4L'", "lists 7 layers of 8"),
        ("--pipeline-model-parallel-layout 'Et*3|t*2|t*3L'", "lists 3 stages, which 2 ranks do not divide"),
        ("--pipeline-model-parallel-layout 'Et*4|t*4mL'", "lists 1 layers for multi-token prediction of 0"),
        ("--pipeline-model-parallel-layout 'Et*4|t*4L' --num-virtual-stages-per-pipeline-rank 2", "excludes"),
        ("--pipeline-model-parallel-layout 'Et*4|t*4L' --decoder-last-pipeline-num-layers 4", "excludes"),
        ("--decoder-last-pipeline-num-layers 3 --account-for-loss-in-pipeline-split", "excludes"),
        ("--decoder-last-pipeline-num-layers 3 --num-virtual-stages-per-pipeline-rank 2", "divide over 2 chunks"),
        ("--decoder-first-pipeline-num-layers 8", "leave 0 for 1 stages between"),
        ("--account-for-loss-in-pipeline-split", "8 layers with 1 for embedding and loss are no multiple"),
        ("--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 3", ""),
        ("--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 1", "has to be"),
        ("--num-virtual-stages-per-pipeline-rank 2", "in groups of 2; a replica has 9"),
        ("--num-virtual-stages-per-pipeline-rank 2 --num-layers 8", ""),
    ],
)
def test_what_megatron_refuses_of_stages_is_said(flags: str, told: str) -> None:
    text = "torchrun --nproc_per_node 2 --nnodes 1 pretrain_gpt.py --num-layers 8 --hidden-size 64 --seq-length 64 "
    text += "--num-attention-heads 4 --micro-batch-size 1 --pipeline-model-parallel-size 2 "
    text += f"--global-batch-size {9 if 'group' in flags + told else 8} "
    found = launch.read_text(text + flags, "run.sh")
    assert told in found.refused
    assert bool(found.refused) == bool(told)
