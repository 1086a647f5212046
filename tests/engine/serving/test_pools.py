"""Disaggregated prefill and decode: against a simulation, by hand, against full enumeration, and in commands."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest

from engine import serving
from engine.serving.deployments import deployments_of, frame_of
from engine.serving.evaluation import WorkloadError, subject_of
from engine.serving.pool_latencies import (
    PrefillProfile,
    cache_transfers,
    decode_profiles,
    loaded_pools,
    loaded_prefill,
    prefill_profiles,
)
from engine.serving.queueing import LEVELS
from tests.engine.serving.replica_simulation import SimulatedReplica, simulate_replica

REQUESTS: Final = 20_000
ASKED: Final[dict[str, Any]] = {
    "load": serving.ServiceLoad(request_rate=40.0),
    "prompt": 1024,
    "output": 256,
    "time_to_first_token": 1.0,
    "time_per_output_token": 0.05,
}


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("prompt_cv", [0.0, 0.8])
@pytest.mark.parametrize("times", [(0.01, 0.03, 8), (0.0, 0.3, 1), (0.03, 0.01, 16), (0.01, 0.1, 2), (0.005, 0.02, 64)])
def test_prefill_under_load_matches_a_simulation(
    times: tuple[float, float, int], prompt_cv: float, share: float
) -> None:
    start, each, most = times
    profile = PrefillProfile(*(np.array([float(value)]) for value in (*times, 0.0)))
    rate = share * profile.largest_rate
    load = serving.ServiceLoad(request_rate=1.0, prompt_cv=prompt_cv)
    found, used = loaded_prefill(profile, load, rate)
    assert used[0] == pytest.approx(share)
    random = np.random.default_rng(1)
    arrivals = np.cumsum(random.exponential(1.0, REQUESTS)) / rate[0]
    works = random.gamma(1 / prompt_cv**2, prompt_cv**2, REQUESTS) if prompt_cv else np.ones(REQUESTS)
    # Requests of one token end with their pass, which takes `start` whatever it holds.
    replica = SimulatedReplica([start] * 999, [each] * 999, 900, most, True, 0.0)
    simulated = simulate_replica(replica, arrivals, np.ones(REQUESTS, np.int64), works).first_token
    for level, factor in (("mean", 1.2), ("p50", 1.3), ("p90", 1.4), ("p99", 1.5)):
        quantile = LEVELS[level]
        value = simulated.mean() if quantile is None else np.quantile(simulated, quantile)
        assert 1 / factor < found.level(level)[0] / value < factor, level


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_two_pools_match_a_chain_of_simulations(share: float) -> None:
    subject = subject_of("llama-3-70B", "h100_80g_sxm")
    table = {"tensor_par": 4, "pipeline_par": 1, "batch": 1, "prompt": 1024, "output": 256, "weight_bits": 8}
    d = deployments_of(frame_of({**table, "kv_bits": 8, "engine": "vllm"}))
    prefill = prefill_profiles(subject, d, np.array([64.0]))
    decode = decode_profiles(subject, d, np.array([256.0]))
    transfer = cache_transfers((subject, d), (subject, d), 45e9)
    rate = share * prefill.largest_rate
    load = serving.ServiceLoad(request_rate=1.0)
    found = loaded_pools(prefill, decode, transfer, load, (rate, rate)).latencies

    arrivals = np.cumsum(np.random.default_rng(1).exponential(1.0, REQUESTS)) / rate[0]
    start, each = [float(prefill.start[0])] * 999, [float(prefill.each[0])] * 999
    ones, most = np.ones(REQUESTS), int(prefill.most[0])
    outputs = np.full(REQUESTS, 256)
    first = SimulatedReplica(start, each, 900, most, True, float(prefill.fixed[0]))
    passed = simulate_replica(first, arrivals, np.ones(REQUESTS, np.int64), ones).first_token
    # The first fifth is left out of the results, here of both pools.
    came = arrivals[REQUESTS // 5 :] + passed + transfer.time[0]
    came -= came.min()
    order = np.argsort(came, kind="stable")
    steps = decode.take(np.zeros(257, np.intp)).at(np.maximum(np.arange(257.0), 1.0)).step.tolist()
    second = SimulatedReplica(steps, [0.0] * 257, 256, 256, False, 0.0)
    rest = simulate_replica(second, came[order], outputs[: len(came)], ones[: len(came)])
    kept = order[len(came) // 5 :]
    whole = passed[kept] + transfer.time[0] + rest.request
    assert found.in_flight[0] == pytest.approx(rest.in_flight, rel=0.1)
    assert found.per_token.mean[0] == pytest.approx(rest.per_token.mean(), rel=0.1)
    assert found.request.mean[0] == pytest.approx(whole.mean(), rel=0.1)
    assert found.request.level("p99")[0] == pytest.approx(np.quantile(whole, 0.99), rel=0.3)


def test_measured_decode_pools() -> None:
    """`decode_pools.csv` is every fourth disaggregated server whose workers are known, of the half of InferenceX's
    results that is fitted to elsewhere (nothing was fitted to these), as ai-dynamo/aiconfigurator copies them (commit
    095f58a51c, aic-core/src/aiconfigurator_core/systems/silicon_sample.csv, Apache-2.0)."""
    table = pd.read_csv(Path(__file__).parent / "decode_pools.csv")
    assert len(table) == 22
    errors = []
    for (system, model), rows in table.groupby(["system", "model"]):
        places = {"batch": 1, "kv_bits": 8, "attention_bits": np.where(rows["weight_bits"] == 4, 16, 8)}
        d = deployments_of(frame_of(rows.assign(**places, compute_bits=rows["weight_bits"])))
        profile = decode_profiles(subject_of(str(model), str(system)), d, np.full(len(rows), 4096.0))
        batch = np.maximum(rows["concurrency"] / rows["workers"] / rows["replicas"], 1.0).to_numpy(float)
        errors += (1e3 * profile.at(batch).step / rows["tpot_ms"] - 1.0).tolist()
    assert np.median(np.abs(errors)) < 0.15
    assert abs(np.median(errors)) < 0.1


def size_pools(**changes: Any) -> serving.PoolSizing:
    given = {**ASKED, **changes}
    return serving.size_pools(given.pop("model", "llama-3-70B"), given.pop("system", "h100_80g_sxm"), **given)


def test_cache_moves_over_the_link_as_counted_by_hand() -> None:
    fields = {"tensor_par": 4, "pipeline_par": 1, "weight_bits": 8, "kv_bits": 16}
    best = size_pools(limits=fields, transfer_gb_per_s=10.0).best
    assert best is not None
    # 80 blocks, 8 key and value heads of 128 each, 2 bytes, over 4 GPUs.
    moved = 1024 * 80 * 2 * 8 * 128 * 2 / 4
    assert best.figures["transfer_bytes"] == pytest.approx(moved)
    busy = 40 / (best.decode["deployments"]) * moved / 10e9, 40 / best.prefill["deployments"] * moved / 10e9
    assert best.figures["link_busy"] == pytest.approx(max(busy))
    assert best.figures["transfer_time"] == pytest.approx(moved / 10e9 * (1 + max(busy) / (1 - max(busy)) / 2))
    # A latent cache is on every rank of a group: TP saves no time.
    latent = size_pools(
        model="deepseek-v3", system="h200_141g_sxm", limits={"tensor_par": 8, "weight_bits": 8, "kv_bits": 8}
    ).best
    assert latent is not None
    assert latent.figures["transfer_bytes"] == pytest.approx(1024 * 61 * (512 + 64))


def test_searched_pairs_are_the_best_of_all_pairs_and_counts() -> None:
    common = {"weight_bits": [8], "kv_bits": [8], "launch": ["graphs"], "pipeline_par": [1]}
    found = size_pools(limits={**common, "tensor_par": [1, 2, 4]}).best
    assert found is not None
    fewest = math.inf
    for first, second in itertools.product((1, 2, 4), repeat=2):
        alone = size_pools(
            limits={**common, "tensor_par": [second]}, prefill_limits={"tensor_par": [first]}, most_procs=64
        ).best
        fewest = min(fewest, math.inf if alone is None else alone.gpus)
    assert found.gpus == fewest
    assert found.figures["first_token_p99"] <= 1.0
    assert found.figures["per_token_p99"] <= 0.05
    assert found.figures["headroom"] >= 1.0
    assert size_pools(limits={**common, "tensor_par": [1, 2, 4]}, most_procs=found.gpus - 1).best is None
    pools = found.prefill, found.decode
    sizes = [row["deployments"] * row["replicas"] * row["tensor_par"] * row["pipeline_par"] for row in pools]
    assert found.gpus == sum(sizes)


def test_harder_questions_never_need_fewer_gpus() -> None:
    def gpus(**changes: Any) -> float:
        best = size_pools(**changes).best
        return math.inf if best is None else best.gpus

    easy = gpus()
    assert gpus(time_per_output_token=0.02) >= easy
    assert gpus(time_to_first_token=0.3) >= easy
    fast = size_pools(mean_time_to_first_token=0.3, mean_time_per_output_token=0.03).best
    assert fast is not None
    assert fast.figures["first_token_mean"] <= 0.3
    assert fast.figures["per_token_mean"] <= 0.03
    assert fast.gpus >= easy
    assert gpus(load=serving.ServiceLoad(request_rate=80.0)) >= easy
    assert gpus(load=serving.ServiceLoad(request_rate=40.0, arrival_cv=3.0)) >= easy
    assert gpus(transfer_gb_per_s=0.2) >= easy
    assert gpus(assumptions=serving.Assumptions(prefix_hit_rate=0.8)) <= easy


def test_pools_hold_what_an_aggregated_service_does_and_the_comparison_says_which_is_better() -> None:
    aggregated = serving.size_service("llama-3-70B", "h100_80g_sxm", **ASKED)
    pools = size_pools()
    better, why = serving.compare_services(aggregated, pools)
    assert aggregated.best is not None
    assert pools.best is not None
    assert better == ("disaggregated" if pools.best.gpus < aggregated.best["gpus"] else "aggregated")
    assert f"{pools.best.gpus:,} GPUs" in why
    # One small replica holds a light load; two pools are two replicas.
    light = {**ASKED, "load": serving.ServiceLoad(request_rate=0.1), "time_per_output_token": 0.1}
    better, why = serving.compare_services(
        serving.size_service("llama-3-8B", "h100_80g_sxm", **light), size_pools(model="llama-3-8B", **light)
    )
    assert (better, why.split(".")[0]) == ("aggregated", "Aggregated wins with 1 GPUs against 2 GPUs of pools")


def test_pools_of_two_systems_have_their_own_figures() -> None:
    found = size_pools(prefill_system="h200_141g_sxm", system="h100_80g_sxm").best
    assert found is not None
    assert (found.prefill["system"], found.decode["system"]) == ("h200_141g_sxm", "h100_80g_sxm")
    other = size_pools(limits={"engine": ["vllm", "sglang"]}, prefill_limits={"engine": "trtllm"}).best
    assert other is not None
    assert other.prefill["engine"] == "trtllm"
    assert other.decode["engine"] in ("vllm", "sglang")
    same = size_pools(limits={"engine": ["vllm", "sglang"]}).best
    assert same is not None
    assert same.prefill["engine"] == same.decode["engine"]
    assert same.prefill["kv_bits"] == same.decode["kv_bits"]


def test_a_prefix_cache_saves_prefills_only() -> None:
    row = {"tensor_par": 4, "pipeline_par": 1, "batch": 16, "prompt": 4096, "output": 256, "weight_bits": 8}

    def figures(hits: float, prompt: int = 4096, **more: Any) -> Any:
        return serving.evaluate(
            more.pop("model", "llama-3-70B"),
            "h100_80g_sxm",
            {**row, "prompt": prompt, **more},
            assumptions=serving.Assumptions(prefix_hit_rate=hits),
        ).iloc[0]

    none, half, most = (figures(hits) for hits in (0.0, 0.5, 1.0))
    assert most["prefill_time"] < half["prefill_time"] < none["prefill_time"]
    # Half of the tokens have more than half of the pairs: s^2 / 2 less s^2 / 8.
    assert half["prefill_time"] > figures(0.0, 2048)["prefill_time"]
    for name in ("decode_step_time", "memory_total", "largest_batch"):
        assert none[name] == half[name] == most[name]
    # All tokens but one are found: a prompt takes about as long as a step.
    alone = figures(1.0, batch=1)
    assert alone["prefill_time"] < 3 * alone["decode_step_time"]
    with pytest.raises(ValueError, match="prefix_hit_rate is 2; it must be a share from 0 to 1"):
        serving.Assumptions(prefix_hit_rate=2)


def test_accepted_drafts_shorten_the_time_per_token_by_what_a_step_gains() -> None:
    def row(batch: int, drafts: int, accepted: float) -> Any:
        fields = {"tensor_par": 8, "pipeline_par": 1, "expert_par": 8, "batch": batch, "prompt": 1024, "output": 1024}
        return serving.evaluate(
            "deepseek-v3",
            "b200_180g_sxm",
            {**fields, "weight_bits": 8, "kv_bits": 8},
            assumptions=serving.Assumptions(draft_tokens=drafts, accepted_tokens=accepted),
        ).iloc[0]

    plain, refused, accepted = row(1, 0, 0.0), row(1, 3, 0.0), row(1, 3, 2.0)
    # Drafts cost the same whatever becomes of them, and a step gives three tokens instead of one.
    assert refused["decode_step_time"] == accepted["decode_step_time"] > plain["decode_step_time"]
    assert plain["time_per_output_token"] == plain["decode_step_time"]
    assert accepted["time_per_output_token"] == pytest.approx(refused["time_per_output_token"] / 3)
    assert sum(accepted[name] for name in serving.STEP_PARTS) == pytest.approx(accepted["decode_step_time"])
    # Experts of large batches are visited by all anyway, but products are no longer free.
    gains = [
        row(batch, 3, 2.0)["time_per_output_token"] / row(batch, 0, 0.0)["time_per_output_token"] for batch in (1, 512)
    ]
    assert gains[0] < gains[1]
    with pytest.raises(ValueError, match="accepted_tokens is 2; it must be from 0 to the 1 draft_tokens"):
        serving.Assumptions(draft_tokens=1, accepted_tokens=2)
    # A pool that only decodes has as many tokens per step.
    one, more = (
        size_pools(assumptions=serving.Assumptions(draft_tokens=n, accepted_tokens=a), time_per_output_token=0.02).best
        for n, a in ((0, 0.0), (2, 1.5))
    )
    assert one is not None
    assert more is not None
    assert more.gpus <= one.gpus


def test_command_recommends_and_exports_both_pools(shardscape: Any, tmp_path: Any) -> None:
    words = ("service", "llama-3-70B", "h100_80g_sxm", "--rate", 40, "--prompt", 1024, "--output", 256, "--ttft", 1)
    code, out, _ = shardscape(*words, "--tpot", 0.05, "--disaggregated", "either", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["recommended"] == "disaggregated"
    best = document["disaggregated"]["best"]
    file = tmp_path / "service.json"
    file.write_text(out)
    code, out, _ = shardscape("export", file, "--to", "vllm", "--json")
    assert code == 0
    flags = json.loads(out)["flags"]
    for role in ("prefill", "decode"):
        assert flags[role]["--tensor-parallel-size"] == best[role]["tensor_par"]
    code, out, _ = shardscape("export", file, "--to", "dynamo")
    for role in ("Prefill", "Decode"):
        assert f"{role} pool: {best[role.lower()]['deployments']}, each on" in out
    # An aggregated service is exported with all of its copies.
    code, out, _ = shardscape(*words, "--tpot", 0.05, "--json")
    file.write_text(out)
    copies = json.loads(out)["best"]["deployments"]
    code, out, _ = shardscape("export", file, "--to", "kubernetes")
    assert copies > 1
    assert f"Servers: {copies}" in out
    code, out, _ = shardscape(*words, "--disaggregated", "yes")
    assert "Pools win" in out or "Aggregated wins" in out or "Both take" in out


def test_bad_questions_about_pools_get_a_sentence(shardscape: Any) -> None:
    with pytest.raises(WorkloadError, match="2 or more"):
        size_pools(output=1)
    with pytest.raises(WorkloadError, match="transfer_gb_per_s is -1"):
        size_pools(transfer_gb_per_s=-1)
    words = ("service", "llama-3-70B", "h100_80g_sxm", "--prompt", 1024, "--output", 256)
    for more, sentence in (
        (("--rate", 4, "--prefill-limit", "tensor_par=2"), "about two pools"),
        (("--rate", 4, "--think", 5, "--disaggregated", "yes"), "--think is the pause of users"),
        (("--rate", 4, "--disaggregated", "yes", "--room-for-error"), "cannot be given with two pools"),
        (("--rate", 4, "--accepted-tokens", 2), "must be at most --draft-tokens, which is 0"),
    ):
        code, _, err = shardscape(*words, *more)
        assert code == 2, err
        assert sentence in err
    assert "No prefill deployment holds" in size_pools(time_to_first_token=0.001).obstacle
    assert "No decode deployment holds" in size_pools(time_per_output_token=0.0001).obstacle
