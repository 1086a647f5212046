"""Laws of frozen weights with adapters, chunked losses, packed samples, and forward passes alone."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
import models
from engine import serving
from engine.cost_models.calibrated import block_level, case_of, model_shapes, parameters
from engine.cost_models.registry import COST_MODELS
from engine.executions.forward_passes import forward_executions
from engine.launch import FRAMEWORKS, LaunchError, write
from engine.scenarios.scenario import Scenario
from hardware import load
from models import Model

SYSTEM = "h200_141g_sxm"
NAMES = ("llama-3-8B", "qwen3-30B-A3B", "qwen3-next-80B-A3B")
LORA = {"adapter_rank": 16}


@cache
def space_of(name: str, **limits: Any) -> Any:
    scenario = Scenario.of(name, SYSTEM, num_procs=8, max_batch_size=16, datatype="bfloat16", limits=limits)
    return scenario.space


@cache
def executions_of(name: str) -> pd.DataFrame:
    """Return executions of a space, spread over it, without offloading."""
    space = space_of(name)
    table = space.table(np.linspace(0, space.total - 1, 6_000).astype(int).tolist())
    offloaded = table["weight_offload"] | table["activations_offload"] | table["optimizer_offload"]
    return table[~offloaded].reset_index(drop=True)


def evaluate(model: Model, table: pd.DataFrame) -> pd.DataFrame:
    """Return statistics of executions where nothing is too large."""
    system = load(SYSTEM)
    large = system.model_copy(update={"mem1": system.mem1.model_copy(update={"capacity_gib": 1e6})})
    return engine.evaluate(model, large, table, cost_model="calibrated")


@cache
def plain(name: str) -> pd.DataFrame:
    return evaluate(models.load(name), executions_of(name))


def tuned(name: str, **tuning: Any) -> Model:
    return models.tuned(models.load(name), tuning)


@pytest.mark.parametrize("name", NAMES)
def test_adapters_never_need_more_memory_than_all_weights(name: str) -> None:
    full, lora = plain(name), evaluate(tuned(name, **LORA), executions_of(name))
    assert (lora["status"] == full["status"]).all()
    fits = (full["status"] == "ok").to_numpy()
    for part in ("weight_grad_space", "optimizer_space", "optim_step_time"):
        assert (lora[part] <= full[part])[fits].all(), part
    # Under sequence parallelism adapters keep gathered inputs, which may be more than small shards of state.
    split = (executions_of(name)["tensor_par_comm_type"] == "rs_ag").to_numpy()
    need = lora["proc_mem_tier1_cap_req"] / full["proc_mem_tier1_cap_req"]
    assert (need <= 1.0)[fits & ~split].all()
    assert (need <= 1.0)[fits & split].mean() > 0.9
    quantized = evaluate(tuned(name, **LORA, frozen_weight_bits=4), executions_of(name))
    assert (quantized["weight_space"] < 0.6 * lora["weight_space"])[fits & (full["tensor_par"] < 4)].any()
    assert (quantized["total_time"] == lora["total_time"])[fits].all()


@pytest.mark.parametrize("name", NAMES)
def test_without_targets_a_step_is_forward_and_gradients_of_inputs(name: str) -> None:
    shapes = model_shapes(tuned(name, **LORA))
    assert shapes.tuning is not None
    bare = replace(shapes, tuning=replace(shapes.tuning, products=tuple(() for _ in shapes.tuning.products)))
    steps = {"tensor_par": [1.0, 2.0], "pipeline_par": 1.0, "data_par": 4.0, "microbatch_size": 4.0, "batch_size": 16.0}
    case = case_of(models.load(name), load(SYSTEM), {each: np.asarray(value) for each, value in steps.items()})
    p = parameters().model_copy(update={"launch": 0.0})
    whole, frozen = block_level(case, p), block_level(replace(case, model=bare), p)
    for kind, block in whole.kinds.items():
        found = frozen.kinds[kind]
        np.testing.assert_allclose(found.forward, block.forward, rtol=1e-12)
        np.testing.assert_allclose(found.backward, block.backward - block.weight_gradient, rtol=1e-9)
        assert (np.asarray(found.weight_gradient) == 0.0).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_forward_pass_takes_and_needs_less_than_its_step(name: str) -> None:
    table = executions_of(name)
    # Schedules of backward passes become 1F1B, which an uneven stage layout may not have.
    plainly = table[table["schedule"].isin(("1f1b", "interleaved"))].reset_index(drop=True)
    step, alone = evaluate(models.load(name), plainly), evaluate(models.load(name), forward_executions(plainly))
    fits = (step["status"] == "ok").to_numpy()
    assert fits.sum() > 200
    assert (alone["status"] == "ok")[fits].all()
    assert (alone["total_time"] <= step["total_time"])[fits].all()
    assert (alone["proc_mem_tier1_cap_req"] <= step["proc_mem_tier1_cap_req"])[fits].all()
    for nothing in ("bw_time", "recompute_time", "optim_step_time", "weight_grad_space", "optimizer_space"):
        assert (alone[nothing] == 0.0)[fits].all(), nothing
    # A third of a step without recomputation, more with what a step hides and spends once.
    whole = fits & (step["recompute_time"] == 0.0).to_numpy() & (step["pipeline_par"] == 1).to_numpy()
    share = (alone["total_time"] / step["total_time"])[whole]
    assert share.between(0.2, 0.5).mean() > 0.9
    assert (alone["total_efficiency"] <= 1.0)[fits].all()


def test_chunks_of_the_loss_never_need_more_and_take_as_long() -> None:
    name = "llama-3-8B"
    full = plain(name)
    before = full
    for chunk in (10**6, 4_096, 512):
        found = evaluate(tuned(name, loss_chunk=chunk), executions_of(name))
        assert (found["proc_mem_tier1_cap_req"] <= before["proc_mem_tier1_cap_req"])[full["status"] == "ok"].all()
        pd.testing.assert_series_equal(found["total_time"], full["total_time"])
        if chunk == 10**6:
            pd.testing.assert_series_equal(found["logit_space"], full["logit_space"])
        before = found
    # Eight bytes per logit of a chunk: 512 tokens of 128,256 words.
    whole = (full["pipeline_par"] == 1) & (full["tensor_par"] == 1) & (full["status"] == "ok")
    assert found["logit_space"][whole].unique() == pytest.approx([8.0 * 512 * 128_256])


def test_packed_samples_save_scores_and_padding() -> None:
    name, table = "llama-3-8B", executions_of("llama-3-8B")
    full = plain(name)
    fits = (full["status"] == "ok").to_numpy()
    # Sequences of 8,192 tokens that are full, of 64 samples: hardly any scores are left.
    short = evaluate(tuned(name, sample_lengths=[128]), table)
    assert (short["total_time"] < full["total_time"])[fits].all()
    assert (short["proc_mem_tier1_cap_req"] == full["proc_mem_tier1_cap_req"])[fits].all()
    # Samples of three fifths of a sequence: one each, and padding is computed with a pipeline only.
    padded = tuned(name, sample_lengths=[4_916])
    assert padded.tokens_per_sample == pytest.approx(4_916)
    found = evaluate(padded, table)
    staged = fits & (full["pipeline_par"] > 1).to_numpy()
    ratio = found["total_time"] / full["total_time"]
    assert ratio[fits & ~staged].max() < 0.75
    assert ratio[staged].min() > 0.75


@pytest.mark.parametrize(
    ("name", "tuning", "limits"),
    [
        ("llama-3-8B", LORA, {}),
        ("qwen3-30B-A3B", {**LORA, "loss_chunk": 512, "sample_lengths": (500, 3_000)}, {}),
        ("llama-3-8B", {}, {"training": False}),
    ],
    ids=["adapters", "experts", "forward"],
)
def test_explorations_have_the_figures_of_single_executions(
    name: str, tuning: dict[str, Any], limits: dict[str, Any]
) -> None:
    model = tuned(name, **tuning)
    found = engine.explore(
        model, SYSTEM, num_procs=8, max_batch_size=16, datatype="bfloat16", limits=limits, cost_model="calibrated"
    )
    top = found.top(20)
    again = engine.evaluate(model, SYSTEM, top, cost_model="calibrated")
    assert len(top) == 20
    assert set(again["status"]) == {"ok"}
    for column in ("total_time", "proc_mem_tier1_cap_req", "bw_time", "total_efficiency"):
        np.testing.assert_allclose(again[column], top[column].astype(float), rtol=1e-12)
    scenario = Scenario.of(
        model, SYSTEM, num_procs=8, max_batch_size=16, datatype="bfloat16", limits=limits, cost_model="calibrated"
    )
    assert engine.best_of(scenario).top["sample_rate"].iloc[0] == pytest.approx(top["sample_rate"].iloc[0])


def test_other_cost_models_refuse_tuned_models() -> None:
    model = tuned("gpt3-13B", **LORA)
    refused = [name for name, each in COST_MODELS.items() if each.unsupported(model)]
    assert refused == ["calculon"]


@pytest.mark.parametrize("name", ["llama-3-8B", "qwen3-next-80B-A3B"])
def test_operations_of_a_block_add_up_to_the_products_of_a_step(name: str) -> None:
    row = executions_of(name).query("pipeline_par == 1 and tensor_par == 2").iloc[0].to_dict()
    for model, passes in ((tuned(name, **LORA), 2), (models.load(name), 1)):
        asked = row if passes == 2 else forward_executions(pd.DataFrame([row])).iloc[0].to_dict()
        found = engine.operations(model, SYSTEM, asked, cost_model="calibrated")
        assert (found["wgrad_processing_time"] == 0.0).all()
        assert ("adapters" in set(found["name"])) == (passes == 2)
        assert (found["agrad_processing_time"] > 0.0).any() == (passes == 2)
        large = evaluate(model, pd.DataFrame([asked])).iloc[0].to_dict()
        account = COST_MODELS["calibrated"].account(model, load(SYSTEM), large, None)
        parts = {part.name: part.seconds for part in account.parts()}
        blocks = dict(zip(account.block().kinds, block_counts(model), strict=True))
        products = found[(found["engine"] == "matrix") & ~found["name"].isin(("attention_core", "mixing"))]
        products = pd.concat([products, found[found["name"] == "adapters"]])
        each = products["fw_time"] + products["bw_time"]
        whole = (each * products["block"].map(blocks)).sum() * row["batch_size"] / row["data_par"]
        assert parts["Linear layers"] == pytest.approx(whole / row["microbatch_size"])


def block_counts(model: Model) -> list[int]:
    return [count for _, count in model.pattern_or_assumed().counted_blocks()]


def test_time_of_quantised_weights_counts_as_never_measured() -> None:
    row = executions_of("llama-3-8B").head(1)
    asked = {bits: tuned("llama-3-8B", **LORA, frozen_weight_bits=bits) for bits in (4, 16)}
    said = {bits: COST_MODELS["calibrated"].not_measured(model, load(SYSTEM), row)[0] for bits, model in asked.items()}
    assert set(said[4]) - set(said[16]) == {"frozen weights in 4 bits"}
    assert "not calibrated" in models.unrepresented(asked[4])[0]
    assert not models.unrepresented(asked[16])


def test_launch_files_say_that_they_train_all_weights() -> None:
    model = tuned("llama-3-8B", **LORA)
    best = engine.best(model, SYSTEM, num_procs=8, max_batch_size=16, datatype="bfloat16", cost_model="calibrated")
    said = []
    for name in FRAMEWORKS:
        try:
            said.append(write(best, model, framework=name).not_expressible[0])
        except LaunchError:  # another framework's execution
            continue
    assert len(said) >= 3
    assert {each.partition(":")[0] for each in said} == {"Adapters of rank 16 on all linear layers"}


@pytest.mark.parametrize("name", ["llama-3-8B", "qwen3-30B-A3B"])
def test_a_space_of_forward_passes_has_each_once(name: str) -> None:
    space = space_of(name, training=False)
    table = space.table(list(range(space.total)))
    assert set(evaluate(models.load(name), table.iloc[::7])["reason"]) <= {"", "offload_needs_three_blocks"}
    assert set(table["zero_stage"]) == {0, 3}
    assert not table[["training", "optimizer_offload", "activations_offload", "data_par_overlap"]].to_numpy().any()
    assert set(table["activation_recompute"]) == {"none"}
    assert set(table["schedule"]) == {"1f1b", "interleaved"}
    assert len(table.drop(columns="id", errors="ignore").drop_duplicates()) == space.total


def test_a_tuned_model_is_served_as_the_model_itself() -> None:
    asked = {"prompt": 1_000, "output": 200, "batch": 8, "tensor_par": 2, "pipeline_par": 2}
    model = tuned("qwen3-30B-A3B", **LORA, sample_lengths=[100, 4_000])
    plainly, same = (serving.evaluate(each, SYSTEM, asked) for each in (models.load("qwen3-30B-A3B"), model))
    assert plainly["status"].iloc[0] == "ok"
    pd.testing.assert_frame_equal(plainly, same)
