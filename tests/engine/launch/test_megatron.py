"""Megatron-LM: published scripts mean what its parser makes of them."""

from __future__ import annotations

import cProfile
from pathlib import Path
from typing import Any

import pytest

import models
from engine import launch
from tests.engine.launch import fixtures


@pytest.mark.parametrize("fixture", fixtures.of("megatron-lm"))
def test_published_flags_mean_what_the_parser_makes_of_them(fixture: dict[str, Any]) -> None:
    expected = fixture["expected"]
    found = launch.read_flags("megatron", fixture["flags"], gpus=fixture["gpus"]["count"])
    assert found.execution == expected["execution"]
    assert expected["model"].items() <= found.model.items()
    assert found.num_procs == fixture["gpus"]["count"]
    assert not found.unread
    assert bool(found.refused) == ("rejected_by_framework" in expected)
    for flag in (word for each in expected.get("not_modelled", ()) for word in each.split() if word.startswith("--")):
        assert any(flag.rstrip(",") in told for told in found.not_modelled), flag


DENSE = {
    "num_procs": 64,
    "tensor_par": 4,
    "pipeline_par": 4,
    "data_par": 4,
    "batch_size": 256,
    "microbatch_size": 1,
    "datatype": "bfloat16",
    "activation_recompute": "none",
    "pipeline_interleaving": 5,
    "optimizer_sharding": True,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "ring",
    "seq_par_ag_redo": True,
    "data_par_overlap": True,
    "zero_stage": 1,
    "attention_kernel": "flash2",
    "launch": "fused",
}
FLAGS_OF_DENSE = """
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5
    --sequence-parallel --tp-comm-overlap --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
    --micro-batch-size 1 --global-batch-size 256 --attention-backend flash --flash-attention-version 2
    --transformer-impl transformer_engine --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64 --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192
    --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 500000 --swiglu
    --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --bf16"""


def test_the_published_example_is_written_flag_by_flag() -> None:
    written = launch.write(DENSE, "llama-3-70B", framework="megatron")
    text = " ".join(written.text.split())
    for flag in FLAGS_OF_DENSE.split(" --"):
        assert "--" + " ".join(flag.split()).removeprefix("--") in text
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in text
    assert "torchrun --nproc_per_node 8 --nnodes 8" in text
    again = launch.read_text(written.text, "launch.sh")
    assert DENSE.items() <= again.execution.items()
    assert launch.named_shape(again.model) == "llama-3-70B"
    assert again.num_procs == 64
    assert not again.unread
    assert not again.refused


def test_a_title_of_anybody_stays_within_its_comment() -> None:
    evil = models.load("llama-3-70B").model_copy(update={"title": "x\nrm -rf / #\r\n\x1b[2Jy\u2028z", "name": "x"})
    for framework in launch.FRAMEWORKS:
        text = launch.write({**DENSE, "pipeline_interleaving": 1}, evil, framework=framework).text
        assert "x rm -rf / # [2Jy z" in text
        assert not [line for line in text.splitlines() if line.startswith("rm")]


SCRIPT = r"""#!/bin/bash
#SBATCH --nodes=8
GPUS_PER_NODE=8   # of each
NUM_NODES=${SLURM_NNODES:-8}
WORLD=$(($GPUS_PER_NODE * NUM_NODES))
cat <<-'NOTE' > about.txt; echo "$((1 << 3))"
It's a run of "70B (
NOTE
TP=4; export CUDA_DEVICE_MAX_CONNECTIONS=1
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES --master_addr "$MASTER_ADDR"
)
MODEL_ARGS=(--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --seq-length 8192
    --position-embedding-type rope --normalization RMSNorm
    --max-position-embeddings 8192 --swiglu --ffn-hidden-size 28672 --group-query-attention --num-query-groups 8)
MORE=" --micro-batch-size 1 \
    --global-batch-size $((WORLD * 4))"
DTYPE_ARGS=()
DTYPE=${1:-fp8}; MOE=1
if [[ "$DTYPE" == "fp8" && $MOE -ge 1 ]]; then
    DTYPE_ARGS+=("--bf16" "--fp8-format hybrid")
elif [[ "$DTYPE" == "bf16" ]]; then DTYPE_ARGS+=(--bf16); MOE=0
else
    DTYPE_ARGS+=("--fp16"); MOE=0
fi
if [ "$MOE" = 1 ]; then
    MODEL_ARGS+=(--frobnicate 3)
fi
if [ -n "$RECOMPUTE" ] || [ ${FULL:-0} = 1 ]; then
    MODEL_ARGS+=(--recompute-granularity full --recompute-method uniform --recompute-num-layers 1)
fi
case "${SIZE:=70B}" in
    8B|7B) TP=1 ;;
    70*) [ $MOE = 0 ] && TP=8 ; [ $MOE = 1 ] || PP=8 ;;
    *) TP=2
esac
[ -f cluster.sh ] && MODEL_ARGS+=(--sequence-parallel)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py $@ \
    "${MODEL_ARGS[@]}" $MORE ${DTYPE_ARGS[@]} --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP:-4} 2>&1 | tee log.txt
"""


@pytest.mark.parametrize("wrapped", [False, True])
def test_scripts_are_read_as_people_write_them(wrapped: bool, tmp_path: Path) -> None:
    script = SCRIPT
    if wrapped:  # as jobs of SLURM are: the command is in a variable
        script = SCRIPT.replace("torchrun ${D", 'run_cmd="torchrun ${D').replace(
            ' "${MODEL_ARGS[@]}" ', " ${MODEL_ARGS[@]} "
        )
        script = script.replace(" 2>&1 | tee log.txt", '"\nsrun -N 8 bash -c "$run_cmd"')
    file = tmp_path / "train.sh"
    file.write_text(script, "utf-8")
    found = launch.read(file)
    assert launch.named_shape(found.model) == "llama-3-70B"
    told = {
        "num_procs": 64,
        "tensor_par": 4,
        "pipeline_par": 4,
        "data_par": 4,
        "batch_size": 256,
        "microbatch_size": 1,
        "tensor_par_comm_type": "rs_ag",
        "zero_stage": 0,
        "datatype": "float8",
    }
    assert told.items() <= found.execution.items()
    assert found.execution["activation_recompute"] == "none"
    assert [each.split()[:2] for each in found.unread] == [["What", "$@"], ["--frobnicate", "is"]]
    assert found.remarks == (
        "Conditions of the script ask for RECOMPUTE, which nothing there sets; they count as empty.",
        "Whether conditions hold is open ([ -f cluster.sh ]); all of their branches are read, the last one counting.",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("--tensor-model-parallel-size eight --num-layers 8", "--tensor-model-parallel-size is 'eight'"),
        ("--num-layers 8 --attention-backend magic", "must be one of flash, fused"),
        ("--num-layers 8 --lr", "--lr has no value"),
        ("--num-layers 8 --bf16 yes", "takes no value"),
        ("--num-layers 8 --tensor-parallel-size 4", "did you mean --tensor-model-parallel-size?"),
        ("--num-layers 8 --seqlen 4", "did you mean --seq-length?"),
        ("--num-layers 8 --zero-stage 3", "--zero-stage is no flag of this version."),  # nothing there is alike
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    found = launch.read_text(f"pretrain_gpt.py {text} --micro-batch-size 1", "run.sh")
    assert any(problem in each for each in found.unread)
    assert found.num_procs is None
    assert {"num_procs", "data_par"} <= set(found.left)


@pytest.mark.parametrize("gathers", [False, True])
def test_gathers_that_are_not_hidden_while_reductions_are_have_no_field(gathers: bool) -> None:
    flags = {"--use-distributed-optimizer": True, "--overlap-grad-reduce": True, "--num-layers": 8}
    found = launch.read_flags("megatron", {**flags, "--overlap-param-gather": gathers})
    assert found.execution["data_par_overlap"]
    assert any("--overlap-param-gather is off" in each for each in found.not_modelled) is not gathers


@pytest.mark.parametrize(
    "flags",
    [
        {
            "--moe-layer-freq": "([0]*99999999+[1]*99999999)",
            "--num-experts": 8,
            "--num-layers": 2,
            "--hidden-size": 8,
            "--num-attention-heads": 2,
        },
        {"--pipeline-model-parallel-layout": "((" * 5000, "--pipeline-model-parallel-size": 4},
        {"--pipeline-model-parallel-layout": "(((t*99999)*99999)*99999)*99999", "--pipeline-model-parallel-size": 4},
        {"--tensor-model-parallel-size": "9" * 4000},
        {"--global-batch-size": -4},
        {"--micro-batch-size": "NaN"},
        {"--num-layers": True},
        {"--recompute-modules": [1, None]},
        {"x" * 10_000: "y" * 10_000},
        {"--optimizer-cpu-offload": True, "--optimizer-offload-fraction": "inf"},
    ],
)
def test_hostile_flags_are_refused_or_read_quickly(flags: dict[str, Any]) -> None:
    try:
        found = launch.read_flags("megatron", flags, gpus=8)
    except launch.LaunchError as error:
        assert len(str(error)) < 400  # noqa: PT017
    else:
        assert all(len(each) < 400 for each in (*found.unread, *found.not_modelled, *found.remarks))


@pytest.mark.parametrize(
    "text",
    [
        "$((" * 3000,
        "${" * 3000,
        "a=$a$a\n" * 200 + "x --num-layers $a",
        "'" + "x" * 9999,
        "[ a = b ] && " * 3000,
        "if [ a ]; then\n" * 3000 + "x --num-layers 2\n" * 3000,
        "A=(" + "--num-layers $B " * 500 + ")\n" + "B=1\n" * 10,
        "<<A\n" * 9999,
        "".join(f"<<A{n}\n" for n in [*range(3000), *range(3000)]),
        "".join(f"cat <<A{n}\n" for n in range(3000)) + "".join(f"A{n}\n" for n in range(2999, -1, -1)),
    ],
)
def test_hostile_scripts_take_work_by_their_length(text: str) -> None:
    """Counts calls, which are the same on every machine: what grows with the square takes thousands for a letter."""
    counted = cProfile.Profile()
    counted.enable()
    try:
        launch.read_text(text, "a.sh")
    except launch.LaunchError as error:
        assert str(error).endswith(".")  # noqa: PT017
    finally:
        counted.disable()
    assert sum(each.callcount for each in counted.getstats()) < 150 * len(text)


@pytest.mark.parametrize(
    ("layers", "pipeline", "flags", "layout"),
    [
        (61, 8, "--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 6", "first_7_last_6"),
        (61, 8, "--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 8", "first_5_last_8"),
        (80, 4, "--decoder-last-pipeline-num-layers 17", "last_17"),
        (6, 8, "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split", None),
        (31, 8, "--account-for-loss-in-pipeline-split", "loss_counted"),
        (61, 8, "--pipeline-model-parallel-layout 'Et*3|(tt|)*29m|L'", "Et*3|(tt|)*29m|L"),
    ],
)
def test_how_layers_are_cut_into_stages(layers: int, pipeline: int, flags: str, layout: str | None) -> None:
    text = f"torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers {layers} --hidden-size 64 {flags} "
    text += (
        f"--num-attention-heads 4 --micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size {pipeline}"
    )
    found = launch.read_text(text, "run.sh")
    assert found.execution.get("stage_layout") == layout
    assert not found.unread
    chunks = 4 if layout and "|" in layout else 1
    assert found.execution["pipeline_interleaving"] == chunks


COMBINED = (
    "torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --num-layers 32 --hidden-size 64 --bf16 "
    "--num-attention-heads 4 --micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size 4 "
    "--num-experts 8 --expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm "
)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("", ""),
        ("--moe-token-dispatcher-type flex", ""),
        ("--mtp-num-layers 1", ""),
        ("--recompute-granularity selective --recompute-modules moe_act --moe-grouped-gemm", ""),
        ("--pipeline-model-parallel-layout 'Et*4|(t*4|)*6t*4L'", ""),
        ("--moe-token-dispatcher-type allgather", "needs the token dispatcher alltoall or flex, not allgather"),
        ("--expert-model-parallel-size 1", "needs expert parallelism"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full recomputation"),
        ("--recompute-granularity selective --recompute-modules moe", "recomputing the module moe"),
        ("--moe-shared-expert-overlap", "overlap of shared experts"),
        ("--mtp-num-layers 2", "one layer for multi-token prediction at most, not 2"),
        ("--num-virtual-stages-per-pipeline-rank 1", "needs interleaving"),
        ("--global-batch-size 80", "microbatches in groups of 4; a replica has 5"),
    ],
)
def test_combined_1f1b_is_read_and_what_megatron_asks_of_it(flags: str, reason: str) -> None:
    """Config checks of megatron-core 0.19: overlap of the exchange of tokens."""
    text = COMBINED + "--moe-token-dispatcher-type alltoall "
    if "layout" not in flags:
        text += "--num-virtual-stages-per-pipeline-rank 2 "
    found = launch.read_text(text + flags, "run.sh")
    assert reason in found.refused
    assert bool(found.refused) == bool(reason)
    if not reason:
        told = found.execution
        assert (told["schedule"], told["pipeline_interleaving"], told["expert_overlap"]) == ("combined_1f1b", 2, True)


def test_combined_1f1b_is_written_with_what_it_needs_or_refused() -> None:
    execution: dict[str, Any] = {
        "num_procs": 64,
        "tensor_par": 1,
        "pipeline_par": 4,
        "data_par": 16,
        "expert_par": 8,
        "batch_size": 64,
        "pipeline_interleaving": 2,
        "microbatch_size": 1,
        "schedule": "combined_1f1b",
        "datatype": "bfloat16",
    }
    for framework, flag in (
        ("megatron", "--overlap-moe-expert-parallel-comm"),
        ("megatron-bridge", "comm_overlap.overlap_moe_expert_parallel_comm"),
    ):
        written = launch.write(execution, "mixtral-8x7B", framework=framework)
        assert written.flags[flag] is True
        assert launch.read_flags(framework, written.flags, gpus=64).execution["schedule"] == "combined_1f1b"
        for changes, reason in (
            ({"expert_par": 1}, "expert_par above 1 only"),
            ({"pipeline_interleaving": 1}, "interleaving above 1 only"),
            ({"activation_recompute": "full"}, "go with full recomputation.$"),
            (
                {"activation_recompute": "attn_only", "selective_recompute": "half"},
                "go with full recomputation of 2 layers of every chunk, which is how Megatron-.* would recompute every "
                "second block.$",
            ),
            ({"batch_size": 80}, "groups of 4"),
        ):
            with pytest.raises(launch.LaunchError, match=reason):
                launch.write({**execution, **changes}, "mixtral-8x7B", framework=framework)
        plain = launch.write(
            {**execution, "schedule": "interleaved", "expert_overlap": True}, "mixtral-8x7B", framework=framework
        )
        assert any("combined 1F1B in Megatron-Core" in each for each in plain.remarks)


@pytest.mark.parametrize(
    ("words", "launched"),
    [
        ({"cuda_graph_impl": "full_iteration"}, "graphs"),
        ({"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["attn", "moe_router"]}, "partial_graphs"),
        ({"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["moe_router"]}, "fused"),
        ({"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ["attn", "moe_router"]}, "partial_graphs"),
        ({"cuda_graph_impl": "transformer_engine", "--cuda-graph-scope": "attn"}, "partial_graphs"),
        ({"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "moe_router"}, "fused"),
        ({"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "full"}, "graphs"),
        ({"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"}, "graphs"),
        ({"cuda_graph_scope": "attn"}, "fused"),
        ({}, "fused"),
    ],
)
def test_cuda_graphs_are_read_with_what_they_cover(words: dict[str, Any], launched: str) -> None:
    flags = launch.read_text(launch.write(DENSE, "llama-3-70B", framework="megatron").text, "launch.sh").flags
    kept = {name: value for name, value in flags.items() if not name.startswith("cuda_graph")}
    found = launch.read_flags("megatron", {**kept, **words}, gpus=64)
    assert found.execution["launch"] == launched
    unread = "cuda_graph_impl" in words and launched == "fused"
    assert any("graphs without attention" in each for each in found.not_modelled) == unread


def test_partial_graphs_are_not_written_with_full_recomputation() -> None:
    execution = {**DENSE, "launch": "partial_graphs", "activation_recompute": "full"}
    written = launch.write(execution, "llama-3-70B", framework="megatron")
    assert any("partial CUDA graphs: not with full recomputation" in each for each in written.not_expressible)
    titan = launch.write({**DENSE, "launch": "partial_graphs"}, "llama-3-70B", framework="torchtitan")
    assert any("torchtitan has graphs of the full step" in each for each in titan.not_expressible)


def test_the_arguments_that_a_log_prints_are_read_as_the_script_was() -> None:
    fixture = next(each for each in fixtures.ALL if each["id"] == "mlm-test-vp2-account-for")
    flags = launch.read_flags("megatron", fixture["flags"], gpus=8)
    lines = {name.removeprefix("--").replace("-", "_"): value for name, value in fixture["flags"].items()}
    lines |= {
        "world_size": 8,
        "cp_comm_type": ["p2p"],
        "recompute_granularity": None,
        "fp8": None,
        "lr": 1e-4,
        "rank": 0,
        "overlap_p2p_comm": True,
        "swiglu": False,
        "data_parallel_size": 2,
    }
    log = "\n".join(f"0: [rank0]   {name} {'.' * 20} {value}" for name, value in lines.items())
    found = launch.read_text(f"------ arguments ------\n{log}\n------ end of arguments ------\n", "log.txt")
    assert found.execution == flags.execution
    assert expected_model(flags.model) == expected_model(found.model)
    assert found.num_procs == 8


def expected_model(model: dict[str, Any]) -> dict[str, Any]:
    return {word: model[word] for word in ("layers", "hidden", "ffn", "heads", "kv_heads", "seq", "tied_embeddings")}


DEEPSPEED = (
    "deepspeed --num_nodes 4 --num_gpus 8 pretrain_gpt.py --num-layers 12 --hidden-size 256 --num-attention-heads 8 "
    "--seq-length 512 --max-position-embeddings 512 --micro-batch-size 2 --global-batch-size 128 --fp16 "
)


def test_with_deepspeed_the_defaults_are_those_of_megatron_deepspeed() -> None:
    """deepspeedai/Megatron-DeepSpeed, megatron/arguments.py: --topk 1, --expert-interval 2."""
    experts = "--num-experts 32 --moe-expert-parallel-size 16 --checkpoint-activations --no-pipeline-parallel "
    found = launch.read_text(DEEPSPEED + experts + "--deepspeed --zero-stage 2 --deepspeed_config x.json", "a.sh")
    told = {"num_procs": 32, "expert_par": 16, "zero_stage": 2, "activation_recompute": "full", "pipeline_par": 1}
    assert told.items() <= found.execution.items()
    assert {"experts": 32, "top_k": 1, "moe_layer_freq": 2}.items() <= found.model.items()
    assert (found.title, found.unread, found.refused) == ("Megatron-DeepSpeed", (), "")
    assert any("x.json is not at hand" in each for each in found.remarks)
    open_stage = launch.read_text(DEEPSPEED + "--deepspeed --deepspeed_config x.json", "a.sh")
    assert {"zero_stage", "data_par_overlap"} <= set(open_stage.left)
    assert "zero_stage" not in open_stage.execution
    plain = launch.read_text(DEEPSPEED + "--num-experts 32", "a.sh")
    assert (plain.title, plain.model["top_k"], plain.model["moe_layer_freq"]) == ("Megatron-LM", 2, 1)


def test_experts_that_nothing_describes_keep_their_degree() -> None:
    flags = {"--expert-model-parallel-size": 8, "--micro-batch-size": 1, "--global-batch-size": 64, "--bf16": True}
    assert launch.read_flags("megatron", flags, gpus=32).execution["expert_par"] == 8
    named = launch.read_flags("megatron", flags, gpus=32, model="mixtral-8x7B")
    assert (named.execution["expert_par"], named.refused) == (8, "")
    dense = {**flags, "--num-layers": 4, "--hidden-size": 64, "--num-attention-heads": 4}
    assert "needs experts" in launch.read_flags("megatron", dense, gpus=32).refused


def test_the_sequence_of_a_run_counts_for_the_model_that_is_named() -> None:
    flags = {"--seq-length": 16384, "--micro-batch-size": 1, "--global-batch-size": 8, "--bf16": True}
    found = launch.read_flags("megatron", flags, gpus=8, model="llama-3-8B")
    assert launch.network_of(found, "llama-3-8B").seq_size == 16384


def test_a_checkpoint_describes_what_no_flag_states_of_the_model() -> None:
    flags = {
        "--use-checkpoint-args": True,
        "--num-layers": 4,
        "--hidden-size": 64,
        "--num-attention-heads": 4,
        "--use-rotary-position-embeddings": True,
        "--micro-batch-size": 1,
        "--seq-length": 128,
    }
    found = launch.read_flags("megatron", flags, gpus=8)
    assert (found.model["layers"], found.model["positions"]) == (4, "rotary")
    assert {"gated_mlp", "tied_embeddings", "norm", "kv_heads"} <= set(found.open_fields)
    with pytest.raises(launch.OpenFieldsError, match="model: --use-checkpoint-args"):
        launch.evaluable(found)
