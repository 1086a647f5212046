"""Stage layouts: published splits, the best split by search, replays of random lists, what executions make of them."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
import models
from engine.cli.limits import parse_limits
from engine.columns import by_name
from engine.columns.stage_layouts import (
    BALANCED,
    EVEN,
    LAYOUTS,
    StageLayoutError,
    canonical,
    layout_of_word,
    list_of_layers,
)
from engine.cost_models.calibrated.layout_choice import layouts_tried
from engine.cost_models.calibrated.physics.inputs import Case
from engine.cost_models.calibrated.physics.layers.head import FORWARD_SHARE
from engine.cost_models.calibrated.physics.memory import activation_bytes, stage_memories
from engine.cost_models.calibrated.physics.parameters import parameters
from engine.cost_models.calibrated.physics.pipeline.chunks import stage_work
from engine.cost_models.calibrated.physics.pipeline.layouts import (
    UNWEIGHED,
    BlockPattern,
    LayoutWork,
    blocks_of_chunks,
    counted,
    pattern_of,
    problem_of,
    work_of,
)
from engine.cost_models.calibrated.physics.pipeline.pace import pace
from engine.cost_models.calibrated.physics.pipeline.schedules import SCHEDULES, activations_in_flight
from engine.cost_models.calibrated.physics.pipeline.stage_times import block_level, pipeline_flow
from engine.cost_models.calibrated.physics.pipeline.stages import PLAIN
from engine.executions.layer_splits import LayerSplitError
from engine.executions.limits import LimitError, normalise
from engine.launch import stage_options
from engine.simulate import replay
from engine.simulate.schedules.registry import rule
from tests.engine.cost_models.calibrated.cases import DENSE, EXPERTS, case
from tests.engine.cost_models.calibrated.small import evaluated as evaluated_small

P = parameters()
REFERENCE = Path(__file__).parents[3] / "reference"
GOLDEN: dict[str, Any] = json.loads((REFERENCE / "schedules" / "golden.json").read_text(encoding="utf-8"))
DEEPSEEK = "Et*3|(tt|)*29,m|L"
"""The layout that Megatron-LM's documentation gives for DeepSeek-V3 on 16 ranks of 2 chunks."""


def position(word: str) -> int:
    found = by_name("stage_layout").position(word)
    assert found >= 0
    return found


def plain(layers: int) -> BlockPattern:
    return BlockPattern(layers, 0, 0, 1)


def word_of(split: dict[str, Any]) -> str:
    """The word of the options of a split of Megatron's."""
    ends = [f"{name}_{split[name]}" for name in ("first", "last") if split[name] is not None]
    counts = split["account_for_embedding"], split["account_for_loss"]
    rules = {(True, True): "both_counted", (True, False): "embedding_counted", (False, True): "loss_counted"}
    return "_".join(ends) or rules.get(counts, "even")


def test_megatrons_splits_have_words() -> None:
    splits = [split for split in GOLDEN["layer_splits"] if split["program"] == "megatron"]
    assert len(splits) > 10
    for split in splits:
        word, shape = word_of(split), (plain(split["layers"]), split["P"], split["virtual"])
        if split["accepted"]:
            assert list(blocks_of_chunks(*shape, position(word))) == split["layers_per_stage"]
            # The same as a list.
            listed = list_of_layers(split["layers_per_stage"])
            assert list(blocks_of_chunks(*shape, position(listed))) == split["layers_per_stage"]
        elif word != "even":
            assert problem_of(*shape, position(word))
            with pytest.raises(LayerSplitError):
                blocks_of_chunks(*shape, position(word))


def test_published_lists_are_read_and_written() -> None:
    deepseek = layout_of_word(DEEPSEEK)
    assert deepseek.layers == (3, *[2] * 29, 0, 0)
    assert deepseek.word == "Et*3|(tt|)*29m|L"
    llama = layout_of_word("E t*7|(t*8|)*14 t*7 L")
    assert llama.layers == (7, *[8] * 14, 7)
    assert layout_of_word("Ettttttt|" + "tttttttt|" * 14 + "tttttttL").word == llama.word
    random = np.random.default_rng(1)
    for _ in range(50):
        layers = tuple(random.integers(0, 5, random.integers(2, 12)).tolist())
        written = list_of_layers(layers)
        assert layout_of_word(written).layers == layers
        assert canonical(written) == written
    assert layout_of_word("first_7_last_6").first == 7
    assert layout_of_word("last_6").last == 6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Even",
        "first_0",
        "first_7last_6",
        "first_7_",
        "last_6_first_7",
        "Et|tt",
        "tE|L",
        "EtL|tL",
        "Em|tL",
        "Ettx|L",
        "E(t(t|))*2|L",
        "E(t|L",
        "Et*|L",
        "Et*99999|(t*9999|)*999L",
        "E" * 5000,
        "E\u0661|L",
        "Et|\x00L",
    ],
)
def test_what_is_no_layout_says_what_would_be(text: str) -> None:
    with pytest.raises(StageLayoutError) as raised:
        layout_of_word(text)
    assert len(str(raised.value)) < 400
    assert by_name("stage_layout").position(text) == -1


def test_balanced_is_as_light_as_contiguous_stages_can_be() -> None:
    random = np.random.default_rng(2)
    for _ in range(150):
        blocks = int(random.integers(2, 10))
        slots = int(random.integers(2, min(5, blocks) + 1))
        pattern = BlockPattern(blocks, int(random.integers(0, blocks + 1)), int(random.integers(0, 3)), 1)
        head, dense = int(random.choice([0, 500, 1230, 3000])), int(random.choice([300, 1000]))
        work = LayoutWork(head, (dense, dense, 1000, 1000))
        kinds = np.diff(counted(pattern, np.arange(blocks + 1)), axis=1)
        each = np.where(kinds[2] + kinds[3] > 0, work.blocks[2], work.blocks[0])

        def heaviest(ends: Any, each: Any = each, head: int = work.head) -> int:
            sums = [each[a:b].sum() for a, b in itertools.pairwise([0, *ends, len(each)])]
            return int(max([*sums[:-1], sums[-1] + head]))

        found = blocks_of_chunks(pattern, slots, 1, BALANCED, work)
        assert sum(found) == blocks
        assert min(found[:-1]) >= 1
        best = min(heaviest(ends) for ends in itertools.combinations(range(1, blocks + 1), slots - 1))
        assert heaviest(np.cumsum(found)[:-1]) == best


def laid_out(name: str, layers: list[int], microbatches: int, chunks: int, base: dict[str, Any]) -> Case:
    """A pipeline of these blocks under a schedule, whose messages run beside computation."""
    c = case(
        base,
        num_blocks=float(sum(layers)),
        pipeline_par=float(len(layers) // chunks),
        data_par=8.0,
        pipeline_interleaving=float(chunks),
        microbatch_size=1.0,
        batch_size=float(microbatches * 8),
        expert_par=8.0 if base["experts"] else 1.0,
        overlap_pipeline=1.0,
    )
    number = float(position(list_of_layers(layers)))
    changed = {"schedule": np.asarray(float(SCHEDULES.index(name))), "stage_layout": np.asarray(number)}
    return replace(c, layout=replace(c.layout, **changed))


def seconds(c: Case, layers: list[int]) -> dict[str, list[float]]:
    """What every stage of the model does per microbatch, for a replay [s]."""
    level, pattern = block_level(c, P), pattern_of(c.model)
    held = np.diff(counted(pattern, np.concatenate([[0], np.cumsum(layers)])), axis=1)
    ends = np.zeros(len(layers))
    ends[0], ends[-1] = float(level.ends.embedding), float(level.ends.head)

    def of(name: str) -> Any:
        figures = [getattr(level.kinds[kind], name) if kind in level.kinds else 0.0 for kind in PLAIN]
        return sum(number * float(each) for number, each in zip(held, figures, strict=True))

    share, weights = FORWARD_SHARE * ends, of("weight_gradient")
    return {
        "F": (of("forward") + share).tolist(),
        "W": (weights + share).tolist(),
        "B": (of("backward") - weights + ends - 2.0 * share).tolist(),
    }


@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
def test_random_lists_take_no_more_than_their_replay_and_hardly_less(name: str) -> None:
    random, errors = np.random.default_rng(3), []
    for trial in range(60):
        stages = int(random.integers(2, 9))
        microbatches = stages * int(random.integers(1, 4)) + int(random.integers(0, 5))
        layers = random.integers(0 if trial % 2 else 3, 8, stages)
        layers[int(random.integers(stages))] += 1
        base = {**EXPERTS, "leading_dense": float(random.integers(0, 3))} if random.random() < 0.5 else DENSE
        c = laid_out(name, layers.tolist(), microbatches, 1, base)
        times = seconds(c, layers.tolist())
        found = replay(name.replace("_", "-"), stages=stages, microbatches=microbatches, times=times)
        path = pipeline_flow(c, block_level(c, P), P).path
        errors.append(float(path.seconds - path.late) / found.makespan - 1)
        most = np.max(np.array(found.peak_activations) * layers)
        if base is DENSE:
            # What is kept of how many microbatches, stage by stage, at the stage that keeps most.
            kept = max(float(stage.activations) for stage in stage_memories(c))
            assert kept == pytest.approx(most * float(activation_bytes(c).kept[0]), rel=1e-12)
    assert max(errors) <= (1e-9 if name == "1f1b" else 2e-3)
    assert min(errors) > -0.07
    assert np.mean(np.abs(errors)) < 0.01


@pytest.mark.parametrize(
    ("name", "mean", "most"),
    [
        ("interleaved", 0.025, 0.11),
        ("zb_v", 0.015, 0.06),
        ("dualpipe", 0.03, 0.11),
        ("dualpipev", 0.025, 0.11),
        ("combined_1f1b", 0.015, 0.05),
    ],
)
def test_how_far_closed_forms_of_unlike_stages_are_from_a_replay(name: str, mean: float, most: float) -> None:
    """With embedding, head, leading dense blocks and up to two blocks fewer at the ends; pairs by the replay's rule."""
    random, errors = np.random.default_rng(5), []
    for _ in range(30):
        stages = 2 * int(random.integers(2, 5)) if name == "dualpipe" else int(random.integers(2, 9))
        chunks = 1 if name == "dualpipe" else 2
        microbatches = stages * int(random.integers(2, 6))
        layers = np.full(stages * chunks, 4)
        layers[-1] -= int(random.integers(0, 3))
        layers[0] -= int(random.integers(0, 2))
        base = {**EXPERTS, "leading_dense": float(random.integers(0, 4))} if random.random() < 0.5 else DENSE
        c = laid_out(name, layers.tolist(), microbatches, chunks, base)
        work = stage_work(c, P, stages, chunks, position(list_of_layers(layers.tolist()))).seconds.sum(axis=0)
        times = dict(zip(("F", "B", "W", "FB"), work.tolist(), strict=True))
        known = rule(name)
        if not known.pairs:
            del times["FB"]
        found = replay(known.name, stages=stages, microbatches=microbatches, chunks=chunks, times=times)
        path = pipeline_flow(c, block_level(c, P), P).path
        errors.append(float(path.seconds - path.late) / found.makespan - 1)
    assert np.mean(np.abs(errors)) < mean
    assert np.max(np.abs(errors)) < most


@pytest.mark.parametrize("name", ["interleaved", "combined_1f1b"])
def test_what_interleaved_stages_keep_is_what_a_replay_keeps(name: str) -> None:
    """Chunk by chunk and stage by stage, from what a replay starts and ends when."""
    random = np.random.default_rng(6)
    schedule = {"combined_1f1b": "interleaved-ep-overlap"}.get(name, name)
    for _ in range(25):
        stages, chunks = int(random.integers(2, 6)), int(random.integers(2, 4))
        microbatches = stages * int(random.integers(1, 6))
        layers = random.integers(0, 5, stages * chunks)
        layers[0] += 1
        c = laid_out(name, layers.tolist(), microbatches, chunks, DENSE)
        times = seconds(c, layers.tolist())
        found = replay(schedule, stages=stages, microbatches=microbatches, chunks=chunks, times=times)
        most = 0
        for rank in found.ranks:
            held, peak = dict.fromkeys(range(stages * chunks), 0), 0
            for entry in rank.split():
                for action in entry.split("+"):
                    stage = int(action.lstrip("FBW").split(".")[1])
                    held[stage] += 1 if action.startswith("F") else -1
                    peak = max(peak, sum(number * int(layers[each]) for each, number in held.items()))
            most = max(most, peak)
        kept = max(float(stage.activations) for stage in stage_memories(c))
        assert kept == pytest.approx(most * float(activation_bytes(c).kept[0]), rel=1e-12)


@pytest.mark.parametrize("name", ["interleaved", "combined_1f1b"])
def test_unlike_chunks_wait_as_in_a_replay(name: str) -> None:
    """In the steady state, by what further microbatches take, where a backward takes twice the forward."""
    random, errors = np.random.default_rng(7), []
    schedule = {"combined_1f1b": "interleaved-ep-overlap"}.get(name, name)
    for _ in range(20):
        stages, chunks = int(random.integers(2, 7)), int(random.integers(2, 4))
        layers = random.integers(0, 5, stages * chunks)
        layers[-1] += 1
        number = position(list_of_layers(layers.tolist()))
        pattern, times = plain(int(layers.sum())), (layers / 3.0).tolist()
        given = {"F": times, "B": times, "W": times}
        ends = [
            replay(schedule, stages=stages, microbatches=groups * stages, chunks=chunks, times=given).makespan
            for groups in (8, 16)
        ]
        busiest = layers.reshape(chunks, stages).sum(axis=0).max()
        factor = pace(pattern, stages, chunks, number, UNWEIGHED, name == "combined_1f1b")
        errors.append(factor * busiest * 8 * stages / (ends[1] - ends[0]) - 1)
    assert np.max(np.abs(errors)) < 0.006
    assert pace(plain(46), 16, 2, position("Et|(t|)*15(tt|)*15L"), UNWEIGHED, False) > 1.1


def test_no_stage_that_is_left_out_has_a_longer_path() -> None:
    """The stages that are looked at are few; every stage of its own cannot take longer."""
    random = np.random.default_rng(4)
    for _ in range(40):
        stages = int(random.integers(3, 12))
        layers = random.integers(1, 5, stages)
        c = laid_out("1f1b", layers.tolist(), int(random.integers(1, 3 * stages)), 1, DENSE)
        level = block_level(c, P)
        path = pipeline_flow(c, level, P).path
        times = {name: np.array(values) for name, values in seconds(c, layers.tolist()).items()}
        each, forward, m = np.sum(list(times.values()), axis=0), times["F"], float(c.microbatches)
        for stage in range(stages):
            after, behind = each[stage + 1 :].sum(), stages - 1 - stage
            backward = each[stage] - forward[stage]
            waits = max(after - behind * forward[stage], 0.0) + max(after - behind * backward, 0.0)
            if m < stages:
                waits = max(after - (m - 1) * min(forward[stage], backward), 0.0)
            whole = each[:stage].sum() + m * each[stage] + (waits if behind else 0.0)
            assert whole <= float(path.seconds - path.late) * (1 + 1e-9)


def rows(**changes: Any) -> pd.DataFrame:
    """One execution of Llama 3 70B on 64 GPUs per layout that is asked for."""
    given = {
        "num_procs": 64,
        "tensor_par": 8,
        "pipeline_par": 4,
        "data_par": 2,
        "batch_size": 64,
        "microbatch_size": 1,
        "pipeline_interleaving": 1,
        "optimizer_sharding": True,
        "zero_stage": 1,
        "data_par_overlap": True,
        "tensor_par_comm_type": "rs_ag",
        "activation_recompute": "none",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "fused_activation": True,
        "attention_type": "multihead",
        "training": True,
        "datatype": "bfloat16",
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
    }
    layouts = changes.pop("stage_layout", ["even"])
    return pd.DataFrame([{**given, **changes, "stage_layout": each} for each in layouts])


def evaluated(table: pd.DataFrame) -> pd.DataFrame:
    return engine.evaluate("llama-3-70B", "h200_141g_sxm", table, cost_model="calibrated")


def test_even_is_what_there_was_before_and_equal_splits_have_equal_figures() -> None:
    found = evaluated(rows(stage_layout=["even", None, "first_20_last_20", "Et*20|(t*20|)*2t*20L", "last_20"]))
    assert found["status"].eq("ok").all()
    without = evaluated(rows().drop(columns="stage_layout"))
    figures = found.select_dtypes("number")
    assert (figures.nunique() <= 1).all()
    pd.testing.assert_frame_equal(figures.head(1), without[figures.columns], check_exact=True)
    assert found["stage_layout"].tolist()[:2] == ["even", "even"]


def test_a_lighter_end_pays_for_the_head() -> None:
    found = evaluated(rows(stage_layout=["even", "Et*20|t*20|t*21|t*19L", "last_23", "balanced"]))
    even, lighter, heavier, balanced = (each for _, each in found.iterrows())
    assert lighter["sample_rate"] > even["sample_rate"] > heavier["sample_rate"]
    assert balanced["sample_rate"] >= lighter["sample_rate"]


def test_layouts_that_do_not_fit_are_refused_in_words() -> None:
    table = pd.concat(
        [
            rows(stage_layout=["Et*20|(t*20|)*2t*19L", "Et*40|t*40L", "first_21", "loss_counted", "nonsense", 7]),
            rows(stage_layout=["balanced"], pipeline_par=1, data_par=8),
            rows(stage_layout=["balanced"], pipeline_interleaving=40),
            rows(stage_layout=["first_40_last_40"], pipeline_par=2**20, num_procs=2**24, pipeline_interleaving=40),
            rows(stage_layout=["last_80", "loss_counted"], pipeline_interleaving=2**31 - 1),
        ],
        ignore_index=True,
    )
    found = evaluated(table)
    told = dict(enumerate(zip(found["reason"], found["reason_text"], strict=True)))
    assert [reason for reason, _ in told.values()] == [
        *["layout_not_of_blocks"] * 4,
        "unknown_word",
        "not_a_word",
        "layout_needs_pipeline",
        "layout_not_of_blocks",
        "network_too_small",
        "layout_not_of_blocks",
        "layout_not_of_blocks",
    ]
    assert "it lists 79 blocks" in told[0][1]
    assert "it lists 2 stages of the model, and there are 4 x 1" in told[1][1]
    assert "59 other layers on 3 ranks" in told[2][1]
    assert "nonsense" in told[4][1]
    assert "Et*3|(tt|)*29m|L" in told[4][1]


def test_a_limit_tries_what_it_names_and_each_split_once() -> None:
    table = evaluated_small("layouts")
    shape = ["pipeline_par", "pipeline_interleaving"]
    there = {key: set(group["stage_layout"]) for key, group in table.groupby(shape)}
    assert there == {
        (2, 1): {"even", "last_1", "Ett|t*5L"},
        (4, 1): {"even", "Et*3|(t|)*2ttL", "first_1_last_2"},
        (2, 2): {"balanced", "Et*3|(t|)*2ttL"},
        (2, 4): {"Et|(t|)*6L"},
        (4, 2): {"Et|(t|)*6L"},
    }


def test_megatrons_options_cut_as_the_execution_does() -> None:
    """The list that `balanced` comes to is what somebody runs; schedules that Megatron has not, it does not cut."""

    def told(layout: str, **changes: Any) -> str:
        row = {str(name): value for name, value in rows(stage_layout=[layout]).iloc[0].items()}
        return stage_options(models.load("llama-3-70B"), {**row, **changes})

    assert told("even") == ""
    assert told("balanced") == "--pipeline-model-parallel-layout 'Et*20|t*20|t*21|t*19L'"
    ends = "--decoder-first-pipeline-num-layers 16 --decoder-last-pipeline-num-layers 16"
    assert told("first_16_last_16") == ends
    listed = "Et*24|(t*22|)*2t*12L"
    assert told(listed) == f"--pipeline-model-parallel-layout '{listed}'"
    assert told(listed, schedule="dualpipe") == ""


def test_lists_of_limits_keep_the_commas_of_a_layout() -> None:
    text = "stage_layout=even,Et*3|(tt|)*29,m|L,first_7_last_6"
    assert parse_limits([text]) == {"stage_layout": ["even", "Et*3|(tt|)*29,m|L", "first_7_last_6"]}
    found = normalise(parse_limits([text]), "calibrated")
    assert found == {"stage_layout": [canonical(DEEPSEEK), "even", "first_7_last_6"]}
    assert parse_limits(["stage_layout=Et,nonsense"]) == {"stage_layout": ["Et,nonsense"]}
    with pytest.raises(LimitError, match="must begin with the embedding"):
        normalise({"stage_layout": ["tE|L"]}, "calibrated")
    with pytest.raises(LimitError):
        normalise({"stage_layout": [3]}, "calibrated")


def test_layouts_are_tried_in_the_order_of_their_words() -> None:
    """Positions depend on what else a process has met, so that ids must not depend on them."""
    late, early = position("Ett|t*5L"), position("Ettt|t*4L")
    for wanted in ((late, early), (early, late)):
        assert [layout for _, layout in layouts_tried(plain(7), UNWEIGHED, 2, wanted)] == list(wanted)


def test_equal_work_counts_as_equal_and_the_head_as_what_it_multiplies() -> None:
    """Llama 3 70B's head has 128,256 x 8,192 parameters, a block 855.6 million and the scores of half a sequence."""
    c = case(
        {
            **DENSE,
            "vocabulary": 128256.0,
            "hidden": 8192.0,
            "feedforward": 28672.0,
            "gated": 1.0,
            "attn_heads": 64.0,
            "key_value_heads": 8.0,
            "seq_size": 8192.0,
        }
    )
    head, dense = float(work_of(c.model).head), float(work_of(c.model).blocks[0])
    assert dense == 1000
    scores = 8192 / 2 * 64 * 256
    assert head == round(1000 * 128256 * 8192 / (8192 * (64 + 8) * 256 + 3 * 8192 * 28672 + scores))
    assert LAYOUTS[EVEN] == "even"


def test_blocks_in_flight_are_those_of_the_schedule() -> None:
    """Without chunks a stage keeps its blocks of as many microbatches as the schedule says, the first most."""
    layers = [2, 6, 2, 2]
    c = laid_out("1f1b", layers, 8, 1, DENSE)
    expected = max(number * float(activations_in_flight(0, 4, rank, 8, 1)) for rank, number in enumerate(layers))
    assert expected == 18
    kept = max(float(stage.activations) for stage in stage_memories(c))
    assert kept == pytest.approx(18 * float(activation_bytes(c).kept[0]))
