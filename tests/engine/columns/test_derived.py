"""Derived figures against published ones, hand computation, and an independent minimisation and simulation."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

import hardware
import models
from engine.economics import (
    INPUTS,
    OUTPUTS,
    DerivedError,
    RunInputs,
    architecture_flops,
    daly_interval,
    energy_kwh,
    expected_seconds,
    processor_hours,
    seconds_for_tokens,
    token_flops,
    tokens_per_second,
    tokens_per_second_at,
    training_run,
    utilisation,
    young_interval,
)
from engine.economics.checkpoints import split_expected_time
from engine.validation import library_runs
from models import Architecture, Experts

DAY = 86_400.0
GPT3 = "gpt3-175B"
RATE = ("--tflops", 100, "--attention", "full")


def architecture(**fields):
    """A plain decoder of round numbers."""
    known = {
        "hidden": 1024,
        "ffn": 4096,
        "layers": 8,
        "heads": 16,
        "kv_heads": 16,
        "head_dim": 64,
        "gated_mlp": False,
        "vocab": 32_000,
        "vocab_padded": 32_768,
        "tied_embeddings": False,
    }
    return Architecture(**{**known, **fields})


# arithmetic of a token


def test_a_plain_decoder_by_hand():
    found = architecture_flops(architecture(), 2048)
    assert found.weights == 8 * 2 * (4 * 1024 * 1024 + 2 * 1024 * 4096)
    assert found.attention == 8 * 4 * 1024 * 2048  # a forward pass; in training 12 L h s
    assert found.model() - 3 * (found.weights + found.head) == 12 * 8 * 1024 * 2048
    assert found.causal_attention == found.attention / 2
    assert found.head == 2 * 1024 * 32_000
    assert found.model("causal") == 3 * (found.weights + found.head) + 6 * 8 * 1024 * 2048
    assert found.model(training=False) == found.forward()


def test_grouped_queries_gated_mlp_and_experts_by_hand():
    experts = Experts(routed=16, top_k=2, ffn=512, shared=1, leading_dense_layers=1)
    found = architecture_flops(architecture(kv_heads=4, gated_mlp=True, experts=experts), 2048)
    attention = 1024 * (1024 + 2 * 4 * 64 + 1024)
    mixture = 1024 * 16 + (2 + 1) * 3 * 1024 * 512
    assert found.weights == 2 * (8 * attention + 3 * 1024 * 4096 + 7 * mixture)
    assert found.attention == 8 * 4 * 1024 * 2048  # sharing keys saves weights, not products


@pytest.mark.parametrize("kind", ["sliding", "chunked"])
@pytest.mark.parametrize("length", [2000, 2048, 300])
def test_windows_against_counting_every_pair(kind, length):
    window, every = 512, 4
    shape = architecture(sliding_window=window, full_attention_every=every, window_kind=kind)
    rows, columns = np.arange(length)[:, None], np.arange(length)[None, :]
    causal = columns <= rows
    near = (rows - columns < window) if kind == "sliding" else (rows // window == columns // window)
    pairs = 6 * np.sum(causal & near) + 2 * np.sum(causal)
    found = architecture_flops(shape, length)
    # Counting a token's product with itself in full rather than half adds half a token per layer.
    assert found.causal_attention / (4 * 1024) == pytest.approx(pairs / length, abs=8)


def test_latent_and_sparse_attention_by_hand():
    model = models.load("deepseek-v3.2")
    shape, length = model.architecture, 8192
    found = architecture_flops(shape, length)
    latent, index = shape.latent_attention, shape.sparse_attention
    pair = 2 * shape.heads * (latent.nope_head_dim + latent.rope_head_dim + latent.v_head_dim)
    by_hand = shape.layers * (pair * index.top_k + 2 * index.heads * index.head_dim * length)
    assert found.attention == by_hand


def test_narayanan_equation_of_one_iteration():
    # F = 96 B s l h^2 (1 + s / 6h + V / 16 l h), with full recompute (arXiv:2104.04473, equation 3)
    layers, hidden, length, vocab = 96, 12_288, 2048, 51_200
    shape = architecture(
        hidden=hidden,
        ffn=4 * hidden,
        layers=layers,
        heads=96,
        kv_heads=96,
        head_dim=128,
        vocab=vocab,
        vocab_padded=vocab,
    )
    published = 96 * layers * hidden**2 * (1 + length / (6 * hidden) + vocab / (16 * layers * hidden))
    assert architecture_flops(shape, length).hardware("full") == pytest.approx(published, rel=1e-12)


def test_selective_recompute_repeats_the_inside_of_attention():
    found = token_flops(models.load(GPT3))
    assert found.hardware("none") == found.model()
    assert found.hardware("attn_only") - found.model() == found.attention
    # Korthikanti et al. (arXiv:2205.05198), appendix A: hardware over model FLOP is about 1 + s / 18h for 175B.
    ratio = found.hardware("attn_only") / found.model()
    assert ratio == pytest.approx(1 + 2048 / (18 * 12_288), abs=5e-4)


def test_both_recipes_agree_but_for_the_vocabulary():
    model = models.load(GPT3)
    published, block = token_flops(model), token_flops(model, "block")
    assert block.head == 0
    assert (block.weights, block.attention) == (published.weights, published.attention)
    with pytest.raises(models.ModelFileError, match="mixture of"):
        token_flops(models.load("deepseek-v3"), "block")


def test_published_training_compute():
    # Llama 3 405B: 3.8e25 FLOP for 15.6e12 tokens (arXiv:2407.21783, section 3.2.1: 6 N D)
    llama = token_flops(models.load("llama-3.1-405B"))
    assert (llama.model("causal") * 15.6e12) == pytest.approx(3.8e25, rel=0.06)
    # DeepSeek-V3: 37e9 active parameters, 6 N without attention
    deepseek = token_flops(models.load("deepseek-v3"))
    assert 3 * (deepseek.weights + deepseek.head) == pytest.approx(6 * 37e9, rel=0.03)


@pytest.mark.parametrize("experts", [False, True])
def test_measured_runs_were_normalised_alike(experts):
    """Whoever collected the runs worked out the arithmetic of each from its shape, in both conventions."""
    runs = library_runs().table.copy()
    recorded = ["norm_model_tflops_full", "norm_model_tflops_causal"]
    runs[recorded] = runs[recorded].apply(pd.to_numeric, errors="coerce")
    shape = ["hidden", "ffn", "layers", "heads", "kv_heads", "head_dim", "vocab"]
    if experts:
        runs = runs[(runs["moe_experts"] > 0) & (runs["attn"] == "")]
        shape = [*shape, "moe_topk", "moe_ffn", "moe_shared", "moe_dense_layers"]
    else:
        runs = runs[~(runs["moe_experts"] > 0)]
    runs = runs.dropna(subset=[*shape, "seq_len", "tokens_per_s_per_gpu", *recorded])
    plain = [name for name in shape if "moe" not in name]
    ratios = [_normalised(row, plain, experts) for row in runs.to_dict("records")]
    assert len(ratios) > (20 if experts else 600)
    assert np.asarray(ratios) == pytest.approx(1, abs=2e-4)


def _normalised(row, shape, experts):
    """Work of a run over what was recorded for it, in both conventions."""
    fields = {name: int(row[name]) for name in shape}
    if experts:
        fields["experts"] = Experts(
            routed=int(row["moe_experts"]),
            top_k=int(row["moe_topk"]),
            ffn=int(row["moe_ffn"]),
            shared=int(row["moe_shared"] > 0),
            shared_ffn=int(row["moe_shared"] * row["moe_ffn"]) or None,
            leading_dense_layers=int(row["moe_dense_layers"]),
        )
    found = architecture_flops(
        architecture(**fields, vocab_padded=fields["vocab"], gated_mlp=bool(row["gated_mlp"])), int(row["seq_len"])
    )
    rate = float(row["tokens_per_s_per_gpu"]) / 1e12
    return [found.model(one) * rate / row[f"norm_model_tflops_{one}"] for one in ("full", "causal")]


# rates, times, amounts


def test_end_to_end_training_time_of_narayanan():
    # arXiv:2104.04473, section 5.1: 8 T P / (n X) gives 34 days for 175B, 84 days for 1T
    for tokens, parameters, procs, rate, days in (
        (300e9, 175e9, 1024.0, 140e12, 34),
        (450e9, 1e12, 3072.0, 163e12, 84),
    ):
        seconds = seconds_for_tokens(tokens, tokens_per_second_at(8 * parameters, procs, rate))
        assert seconds == pytest.approx(8 * tokens * parameters / (procs * rate))
        assert seconds / DAY == pytest.approx(days, abs=1)
    # With the arithmetic of the model itself in place of 8 P: attention adds a little, the embedding takes some away.
    flops = token_flops(models.load(GPT3)).hardware("full")
    assert seconds_for_tokens(300e9, tokens_per_second_at(flops, 1024.0, 140e12)) / DAY == pytest.approx(34, abs=1)


def test_palm_utilisation():
    # PaLM (arXiv:2204.02311), table 3: 238.3e3 tokens/s on 6,144 TPU v4 of 275 TFLOP/s is 46.2 % with attention.
    # 118 layers, 48 heads of 256, sequence 2,048, 540.35e9 parameters: 6 N + 12 L H Q T.
    per_token = 6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048
    assert utilisation(per_token, 238.3e3, 6144.0, 275e12) == pytest.approx(0.462, abs=5e-4)


def test_rates_take_arrays():
    steps = np.array([1.0, 2.0, 4.0])
    rates = tokens_per_second(np.float64(2048 * 512), steps)
    assert rates.tolist() == [1_048_576, 524_288, 262_144]
    assert seconds_for_tokens(1e9, rates).tolist() == [1e9 / rate for rate in rates]
    assert processor_hours(np.array([8.0, 16.0]), 7200.0).tolist() == [16, 32]
    # 1,000 processors of 700 W for an hour, half of it drawn, 1.2 at the building: 420 kWh
    assert energy_kwh(1000.0, 3600.0, 700.0, 0.5, 1.2) == pytest.approx(420)


# failures


@pytest.mark.parametrize(("mtbf_minutes", "published"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_daly_published_intervals(mtbf_minutes, published):
    # Daly 2006, figures 3 to 5: writing takes 5 minutes
    assert daly_interval(5.0, float(mtbf_minutes)) == pytest.approx(published, rel=0.006)  # to two or three digits


def test_young_by_hand_and_both_on_arrays():
    assert young_interval(5.0, 1440.0) == 120
    writes = np.array([1.0, 10.0, 500.0])
    assert young_interval(writes, 200.0).tolist() == [math.sqrt(2 * write * 200) for write in writes]
    assert daly_interval(writes, 200.0)[2] == 200  # writing takes longer than twice the time between failures
    assert daly_interval(writes, 200.0)[:2].tolist() == [daly_interval(float(write), 200.0) for write in writes[:2]]


@pytest.mark.parametrize("ratio", [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("restart", [0.0, 0.2])
def test_the_interval_loses_least(ratio, restart):
    mtbf, write = 1e4, 1e4 * ratio
    best = np.min(expected_seconds(1e6, np.geomspace(1.0, 1e5, 200_001), write, restart * mtbf, mtbf))
    taken = expected_seconds(1e6, daly_interval(write, mtbf), write, restart * mtbf, mtbf)
    first = expected_seconds(1e6, young_interval(write, mtbf), write, restart * mtbf, mtbf)
    assert best <= taken * (1 + 1e-9)
    # of the waste, not only of the time
    assert (taken - 1e6) <= (best - 1e6) * 1.002
    assert taken <= first * (1 + 1e-9)


def test_expected_time_against_a_simulation():
    random = np.random.default_rng(2006)
    compute, interval, write, restart, mtbf = 40.0, 2.0, 0.3, 0.7, 5.0
    totals, failures, restarting = [], [], []
    for _ in range(4000):
        clock = done = repairing = 0.0
        failed = 0
        following = random.exponential(mtbf)
        while done < compute - 1e-9:
            if clock + interval + write <= following:
                clock, done = clock + interval + write, done + interval
                continue
            clock, failed = following, failed + 1
            following = clock + random.exponential(mtbf)
            while clock + restart > following:
                repairing, clock, failed = repairing + following - clock, following, failed + 1
                following = clock + random.exponential(mtbf)
            clock, repairing = clock + restart, repairing + restart
        totals.append(clock)
        failures.append(failed)
        restarting.append(repairing)
    found = split_expected_time(compute, interval, write, restart, mtbf)
    total = sum(found[:4])
    assert total == pytest.approx(expected_seconds(compute, interval, write, restart, mtbf))
    for value, simulated in ((total, totals), (found.failures, failures), (found.restarting, restarting)):
        error = np.std(simulated) / math.sqrt(len(simulated))
        assert abs(np.mean(simulated) - value) < 4 * error
    assert found.writing == pytest.approx(compute / interval * write)


def test_rare_failures_cost_half_an_interval_and_a_restart_each():
    found = split_expected_time(1e6, 3000.0, 30.0, 600.0, 1e7)
    assert found.failures == pytest.approx(0.1, rel=0.02)
    assert found.restarting == pytest.approx(found.failures * 600, rel=1e-4)
    assert found.lost == pytest.approx(found.failures * (3000 + 30) / 2, rel=1e-3)


# a whole run


def llama_run(**given):
    """Llama 3 405B on 16,384 H100 at 400 TFLOP/s each, as in arXiv:2407.21783, table 4."""
    flops = token_flops(models.load("llama-3.1-405B"))
    return training_run(
        RunInputs.of(hardware.load("h100_80g_sxm"), tokens=15.6e12, **given),
        tokens_per_s=tokens_per_second_at(flops.model(), 16_384.0, 400e12),
        num_procs=16_384,
        parameters=float(models.load("llama-3.1-405B").parameters),
    )


def test_llama_3_has_more_than_nine_tenths_of_goodput():
    run = llama_run()
    assert run.system_mtbf_s == pytest.approx(54 * DAY / 419, rel=1e-4)
    assert run.goodput > 0.90  # section 3.3.4
    assert run.goodput < 0.95
    assert run.failures == pytest.approx(419 / (54 * DAY) * run.wall_s, rel=1e-4)
    assert run.proc_hours == pytest.approx(30.84e6, rel=0.05)  # model card of Llama 3.1 405B
    assert run.checkpoint_bytes < 4e9  # section 3.3.1: 1 MB to 4 GB per GPU
    assert run.usd == pytest.approx((1.99 * run.proc_hours, 5.0 * run.proc_hours))
    assert run.energy_kwh == pytest.approx(run.proc_hours * 0.7 * 1.5 * 1.1)
    assert run.usd_per_billion[0] == pytest.approx(run.usd[0] / 15_600)
    assert run.kwh_per_billion == pytest.approx(run.energy_kwh / 15_600)


def test_a_small_run_by_hand():
    inputs = RunInputs(
        tokens=1e9,
        usd_low=2.0,
        usd_high=3.0,
        power_w=500.0,
        power_share=1.2,
        pue=1.5,
        mtbf_h=800.0,
        bytes_per_parameter=10.0,
        storage_gb_per_s=0.5,
        restart_s=100.0,
        interval_s=900.0,
    )
    run = training_run(inputs, tokens_per_s=1e5, num_procs=8, parameters=4e9)
    assert run.compute_s == 1e4
    assert run.system_mtbf_s == 800 * 3600 / 8
    assert run.checkpoint_bytes == 5e9
    assert run.checkpoint_s == 10
    assert run.young_s == pytest.approx(math.sqrt(2 * 10 * 360_000))
    wall = 360_000 * math.exp(100 / 360_000) * (math.exp(910 / 360_000) - 1) * 1e4 / 900
    assert run.wall_s == pytest.approx(wall)
    assert run.goodput == pytest.approx(1e4 / wall)
    assert run.proc_hours == pytest.approx(8 * wall / 3600)
    assert run.usd == pytest.approx((16 * wall / 3600, 24 * wall / 3600))
    assert run.energy_kwh == pytest.approx(8 * wall / 3600 * 0.5 * 1.2 * 1.5)
    assert sum(run.parts[:4]) == pytest.approx(run.wall_s)


def test_the_price_in_the_middle_lies_half_way_between_the_recorded_ones():
    assert RunInputs(usd_low=2.0, usd_high=3.0).usd_middle == 2.5
    assert RunInputs(usd_low=4.0, usd_high=4.0).usd_middle == 4.0
    low, high = hardware.load("h100_80g_sxm").accelerator.usd_per_h
    assert RunInputs.of(hardware.load("h100_80g_sxm")).usd_middle == pytest.approx(low + (high - low) / 2)
    assert RunInputs.of(hardware.load("tpu_v6e_32g")).usd_middle is None


def test_the_taken_interval_is_the_optimum_unless_given_or_longer_than_the_run():
    assert llama_run().interval_s == llama_run().daly_s
    assert llama_run(interval_s=1800.0).interval_s == 1800
    assert llama_run(interval_s=1800.0).wall_s > llama_run().wall_s
    short = training_run(RunInputs(tokens=1e3), tokens_per_s=1e3, num_procs=8, parameters=1e9)
    assert short.interval_s == short.compute_s == 1


def test_without_price_or_power_nothing_is_made_up():
    run = training_run(RunInputs.of(hardware.load("tpu_v6e_32g")), tokens_per_s=1e6, num_procs=256, parameters=8e9)
    assert (run.usd, run.usd_per_billion, run.energy_kwh, run.kwh_per_billion) == (None, None, None, None)


def test_every_input_and_figure_is_described():
    for one in INPUTS.values():
        assert one.label
        assert one.description
        assert one.source
        assert one.default is None or one.low <= one.default <= one.high
    run = llama_run()
    for name, one in OUTPUTS.items():
        assert one.formula
        assert getattr(run, name) is not None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tokens": -5.0}, "tokens is -5.0; it must be a number from 1 to 1e\\+18 \\[tokens\\]"),
        ({"tokens": math.nan}, "tokens is nan"),
        ({"pue": 0.9}, "pue is 0.9; it must be a number from 1 to 10"),
        ({"mtbf_h": 0}, "mtbf_h is 0"),
        ({"restart_s": True}, "restart_s is true"),
        ({"power_share": "much"}, "power_share is 'much'"),
        ({"usd_low": 5.0, "usd_high": 2.0}, "usd_low must be at most usd_high"),
        ({"usd_low": 5.0}, "go together"),
        ({"tokens": 10**400}, "tokens is"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(given, words):
    with pytest.raises(DerivedError, match=words) as refused:
        RunInputs(**given)
    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) < 250


def test_unknown_inputs_and_impossible_runs_are_refused():
    with pytest.raises(DerivedError, match="There is no input 'colour'"):
        RunInputs.of(hardware.load("h100_80g_sxm"), colour="red")
    for wrong in ({"tokens_per_s": 0.0}, {"tokens_per_s": math.nan}, {"num_procs": 0}, {"parameters": math.inf}):
        with pytest.raises(DerivedError, match=f"{next(iter(wrong))} is .*; it must be a number above 0"):
            training_run(RunInputs(), **{"tokens_per_s": 1e5, "num_procs": 8, "parameters": 1e9, **wrong})
    for mtbf in (1e-3, 1.0, 100.0):
        with pytest.raises(DerivedError, match="would all but never end: 100,000 processors fail every"):
            training_run(RunInputs(mtbf_h=mtbf), tokens_per_s=1e5, num_procs=100_000, parameters=1e12)


# the command


def test_cost_prints_figures_and_what_they_rest_on(shardscape):
    stated = ("--tflops", 105, "--attention", "full")
    code, out, _ = shardscape("cost", GPT3, "a100_80g", "--procs", 1024, *stated, "--tokens", 300e9)
    assert code == 0
    # 140 TFLOP/s with full recompute are 105 without: the 34 days of Narayanan et al., before failures
    without = next(line for line in out.splitlines() if line.startswith("Without failures"))
    assert float(without.split()[2]) == pytest.approx(34, abs=1)
    convention = "attention in full (12 L h s per token)"
    for words in ("Goodput", "exp((τ + δ) ÷ M)", convention, "mercatus-ai.com", "arXiv:2407.21783"):
        assert words in out
    for one in INPUTS.values():
        assert one.label in out or one.name == "interval_s"


def test_cost_as_json_equals_the_engine(shardscape):
    code, out, _ = shardscape(
        "cost",
        "llama-3.1-405B",
        "h100_80g_sxm",
        "--procs",
        16_384,
        "--tflops",
        400,
        "--attention",
        "full",
        "--tokens",
        15.6e12,
        "--price",
        "2:3",
        "--json",
    )
    found, run = json.loads(out), llama_run(usd_low=2.0, usd_high=3.0)
    assert code == 0
    for name in OUTPUTS:
        expected = getattr(run, name)
        assert found[name] == pytest.approx(list(expected) if isinstance(expected, tuple) else expected)
    assert found["utilisation"]["mfu"] == pytest.approx(400 / 989)
    assert found["inputs"]["usd_high"] == 3


def test_cost_of_an_execution_is_that_of_its_evaluation(shardscape, tmp_path):
    import engine
    from engine.columns import FIELDS

    best = engine.explore(
        "gpt3-13B",
        "h100_80g_nvl8",
        num_procs=16,
        max_batch_size=32,
        datatype="float16",
        limits={"activation_recompute": "full"},
    ).best
    path = tmp_path / "execution.json"
    path.write_text(json.dumps({column.name: best[column.name] for column in FIELDS}), encoding="utf-8")
    code, out, _ = shardscape("cost", "gpt3-13B", "h100_80g_nvl8", "--execution", path, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["procs"] == 16
    assert found["tokens_per_s"] == pytest.approx(best["sample_rate"] * models.load("gpt3-13B").seq_size)
    assert found["utilisation"]["recompute"] == "full"
    assert found["utilisation"]["hfu"] > found["utilisation"]["mfu"]
    same = shardscape(
        "cost",
        "gpt3-13B",
        "h100_80g_nvl8",
        "--procs",
        16,
        "--step-time",
        best["total_time"],
        "--batch",
        best["batch_size"],
        "--json",
    )
    assert json.loads(same[1])["wall_s"] == pytest.approx(found["wall_s"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "The speed comes from nothing"),
        (["--tflops", 100, "--tokens-per-s", 5], "from --tokens-per-s and --tflops; give exactly one"),
        (["--tflops", 100], "--procs is missing"),
        (["--procs", 8, "--step-time", 3], "needs --batch"),
        (["--procs", 8, "--tflops", -3], "--tflops is -3.0; it must be a number from"),
        (["--procs", 8, "--tflops", 100], "--tflops needs --attention: causal if your program"),
        (["--procs", 8, "--tflops", "nan"], "--tflops is nan"),
        (["--procs", 8, *RATE, "--price", "cheap"], "--price is 'cheap'"),
        (["--procs", 8, *RATE, "--price", "5:2"], "usd_low must be at most usd_high"),
        (["--procs", 8, *RATE, "--pue", 0.5], "pue is 0.5"),
        (["--procs", 8, *RATE, "--datatype", "int8"], "--datatype is 'int8'; a100_80g has float16"),
        (["--procs", 100_000, *RATE, "--mtbf", 10], "would all but never end"),
    ],
)
def test_cost_refuses_in_one_sentence(shardscape, arguments, words):
    code, out, err = shardscape("cost", GPT3, "a100_80g", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
