"""Latencies under load: against a simulation, against single deployments, and the fewest GPUs that hold limits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import serving
from engine.serving.deployments import deployments_of, frame_of
from engine.serving.evaluation import WorkloadError, subject_of
from engine.serving.profiles import ReplicaProfile, replica_profiles
from engine.serving.queueing import LEVELS, LatencyLimits, LoadedReplicas, largest_load, loaded_replicas
from engine.serving.services import ServiceSizing
from engine.serving.space import ServingLimitError
from tests.engine.serving.replica_simulation import SimulatedReplica, SimulatedRequests, simulate_replica

LENGTHS = {"prompt": 1024, "output": 256}
SIZED: dict[str, Any] = {**LENGTHS, "time_to_first_token": 1.0, "time_per_output_token": 0.05}
SMALL = {"tensor_par": [1, 2], "pipeline_par": 1, "weight_bits": 8, "kv_bits": 8, "launch": "graphs"}
REQUESTS = 20_000


class Replica(NamedTuple):
    """A replica of one deployment, and the spread of its requests."""

    model: str
    tensor_par: int
    prompt: int
    output: int
    engine: str = "vllm"
    most: int = 256
    arrival_cv: float = 1.0
    prompt_cv: float = 0.0
    output_cv: float = 0.0

    @property
    def load(self) -> serving.ServiceLoad:
        return serving.ServiceLoad(
            request_rate=1.0, arrival_cv=self.arrival_cv, prompt_cv=self.prompt_cv, output_cv=self.output_cv
        )

    def profile(self) -> ReplicaProfile:
        subject = replace(subject_of(self.model, "h100_80g_sxm"), output_cv=self.output_cv)
        row = {"tensor_par": self.tensor_par, "pipeline_par": 1, "batch": 1, "prompt": self.prompt}
        table = {**row, "output": self.output, "weight_bits": 8, "kv_bits": 8, "engine": self.engine}
        return replica_profiles(subject, deployments_of(frame_of(table)), np.array([float(self.most)]))


def draw(random: np.random.Generator, spread: float) -> npt.NDArray[np.float64]:
    """Return gamma numbers of mean 1 and a coefficient of variation."""
    return random.gamma(1 / spread**2, spread**2, REQUESTS) if spread else np.ones(REQUESTS)


def simulate(
    case: Replica, profile: ReplicaProfile, rate: float, users: int | None = None, think: float = 0.0
) -> SimulatedRequests:
    random = np.random.default_rng(3)
    arrivals = np.cumsum(draw(random, case.arrival_cv)) / rate
    outputs = np.maximum(1, np.round(draw(random, case.output_cv) * case.output)).astype(np.int64)
    works = draw(random, case.prompt_cv)
    times = profile.take(np.zeros(case.most + 1, np.intp)).at(np.maximum(np.arange(case.most + 1.0), 1.0))
    replica = SimulatedReplica(
        times.step.tolist(),
        times.added.tolist(),
        case.most,
        int(profile.per_pass[0]),
        bool(profile.mixed[0] > 0.5),
        float(profile.fixed[0]),
    )
    thinks = random.exponential(think, REQUESTS) if think else None
    return simulate_replica(replica, arrivals, outputs, works, users, thinks)


def ratios(found: LoadedReplicas, simulated: SimulatedRequests, level: str) -> list[float]:
    """Return closed form over simulation of the three latencies."""
    share = LEVELS[level]
    pairs = (
        (found.first_token, simulated.first_token),
        (found.per_token, simulated.per_token),
        (found.request, simulated.request),
    )
    return [
        float(figure.level(level)[0] / (values.mean() if share is None else np.quantile(values, share)))
        for figure, values in pairs
    ]


STEADY = {
    "many in flight": Replica("llama-3-70B", 4, 1024, 256),
    "prefill first": Replica("llama-3-70B", 4, 1024, 256, "sglang"),
    "one prompt per pass": Replica("llama-3-70B", 4, 8192, 256, most=64),
    "few places": Replica("llama-3-8B", 1, 1024, 256, most=16),
    "drawn lengths": Replica("llama-3-8B", 1, 1024, 256, prompt_cv=0.8, output_cv=0.8),
    "short outputs": Replica("llama-3-8B", 1, 2048, 32),
}


@pytest.mark.parametrize("share", [0.5, 0.8])
@pytest.mark.parametrize("name", STEADY)
def test_open_load_matches_a_simulation(name: str, share: float) -> None:
    case = STEADY[name]
    profile, one = case.profile(), np.ones(1)
    rate = share * largest_load(profile, case.load, LatencyLimits())[0]
    found = loaded_replicas(profile, case.load, rate, one)
    simulated = simulate(case, profile, float(rate[0]))
    assert found.in_flight[0] == pytest.approx(simulated.in_flight, rel=0.15)
    for level, most in (("mean", 1.2), ("p50", 1.2), ("p90", 1.5), ("p99", 1.5)):
        for ratio in ratios(found, simulated, level):
            assert 1 / most < ratio < most, (level, ratio)


def test_bursts_wait_longer_as_in_a_simulation() -> None:
    steady = Replica("llama-3-8B", 1, 1024, 256)
    bursts = steady._replace(arrival_cv=3.0)
    profile, one = steady.profile(), np.ones(1)
    rate = 0.5 * largest_load(profile, steady.load, LatencyLimits())[0]
    found = loaded_replicas(profile, bursts.load, rate, one)
    simulated = simulate(bursts, profile, float(rate[0]))
    for level in LEVELS:
        assert all(1 / 1.5 < ratio < 1.5 for ratio in ratios(found, simulated, level))
    calm = loaded_replicas(profile, steady.load, rate, one)
    assert found.first_token.level("p99") > 1.5 * calm.first_token.level("p99")
    # Drawn among many replicas at random, bursts come to none of them.
    spread = loaded_replicas(profile, bursts.load, rate, 1e4 * one)
    assert spread.first_token.level("p99") == pytest.approx(calm.first_token.level("p99"), rel=0.01)


def test_closed_load_is_the_deployment_at_that_batch_and_matches_a_simulation() -> None:
    case = Replica("llama-3-70B", 4, 1024, 256)
    profile = case.profile()
    load = serving.ServiceLoad(users=64.0)
    found = loaded_replicas(profile, load, np.array([64.0]), np.ones(1))
    row = serving.evaluate(
        case.model,
        "h100_80g_sxm",
        {"tensor_par": 4, "pipeline_par": 1, "batch": 64, **LENGTHS, "weight_bits": 8, "kv_bits": 8, "engine": "vllm"},
    ).iloc[0]
    assert found.first_token.mean[0] == pytest.approx(row["time_to_first_token"], rel=1e-12)
    assert found.per_token.mean[0] == pytest.approx(row["time_per_output_token"], rel=1e-12)
    assert found.request.mean[0] == pytest.approx(row["request_latency"], rel=1e-12)
    assert found.rate[0] == pytest.approx(row["requests_per_s"], rel=1e-12)
    simulated = simulate(case, profile, 1.0, users=64)
    assert found.request.mean[0] == pytest.approx(simulated.request.mean(), rel=0.1)
    # Users beyond the places wait for those before them, and no more requests are served.
    more = loaded_replicas(profile, load, np.array([512.0]), np.ones(1))
    full = loaded_replicas(profile, load, np.array([256.0]), np.ones(1))
    assert more.rate == pytest.approx(full.rate)
    assert more.first_token.mean == pytest.approx(full.first_token.mean + full.request.mean)


@pytest.mark.parametrize(
    ("name", "think", "users"),
    [
        ("many in flight", 10.0, 128),
        ("many in flight", 60.0, 775),
        ("few places", 10.0, 67),
        ("drawn lengths", 1.0, 101),
    ],
)
def test_users_who_think_match_a_simulation(name: str, think: float, users: int) -> None:
    case = STEADY[name]
    profile, load = case.profile(), replace(case.load, request_rate=None, users=float(users), think_s=think)
    found = loaded_replicas(profile, load, np.array([float(users)]), np.ones(1))
    simulated = simulate(case, profile, 1.0, users, think)
    assert found.rate[0] == pytest.approx(simulated.rate, rel=0.02)
    first, each, request = ratios(found, simulated, "mean")
    assert (each, request) == pytest.approx((1.0, 1.0), rel=0.05)
    assert 1 / 1.25 < first < 1.25
    for level, most in (("p50", 1.3), ("p90", 1.3), ("p99", 1.3)):
        assert all(1 / most < ratio < most for ratio in ratios(found, simulated, level)), level


def count_by_chain(profile: ReplicaProfile, users: int, think: float) -> float:
    """Return requests per second of the machine-repair chain: a birth and death process whose departures at n requests
    are the throughput of n users who do not think."""
    flights = np.arange(1.0, users + 1.0)
    many = profile.take(np.zeros(users, np.intp))
    rates = loaded_replicas(many, serving.ServiceLoad(users=1.0), flights, np.ones(users)).rate
    births = (users - flights + 1.0) / think
    logs = np.concatenate([[0.0], np.cumsum(np.log(births / rates))])
    shares = np.exp(logs - logs.max())
    return float(np.sum(shares[1:] * rates) / shares.sum())


@pytest.mark.parametrize("name", ["many in flight", "few places", "short outputs"])
@pytest.mark.parametrize("think", [0.5, 20.0])
def test_requests_of_users_follow_from_littles_law_as_in_a_chain_of_states(name: str, think: float) -> None:
    profile, one = STEADY[name].profile(), np.ones(1)
    for users in (1, 30, 300, 1500):
        load = serving.ServiceLoad(users=float(users), think_s=think)
        found = loaded_replicas(profile, load, np.array([float(users)]), one)
        assert found.rate[0] * (found.request.mean[0] + think) == pytest.approx(users)
        assert found.in_flight[0] <= found.rate[0] * found.request.mean[0] * (1 + 1e-6)
        assert found.rate[0] == pytest.approx(count_by_chain(profile, users, think), rel=0.08), users


def test_think_time_leads_from_a_closed_load_to_an_open_one() -> None:
    profile, one = STEADY["many in flight"].profile(), np.ones(1)

    def at(load: serving.ServiceLoad) -> list[float]:
        found = loaded_replicas(profile, load, load.amount * one, one)
        figures = (found.first_token, found.per_token, found.request)
        return [float(figure.level(level)[0]) for figure in figures for level in LEVELS]

    closed = at(serving.ServiceLoad(users=50.0))
    assert at(serving.ServiceLoad(users=50.0, think_s=1e-6)) == pytest.approx(closed, rel=1e-3)
    rare = at(serving.ServiceLoad(users=4.3e5, think_s=86_000.0))
    assert rare == pytest.approx(at(serving.ServiceLoad(request_rate=5.0)), rel=0.01)
    answers = [at(serving.ServiceLoad(users=50.0, think_s=think))[8] for think in (0.0, 1.0, 10.0, 100.0)]
    assert answers == sorted(answers, reverse=True)


@pytest.mark.parametrize(
    "load",
    [
        serving.ServiceLoad(request_rate=40.0),
        serving.ServiceLoad(users=900.0),
        serving.ServiceLoad(users=900.0, think_s=10.0),
    ],
)
def test_fewest_gpus_hold_the_limits_and_one_deployment_fewer_does_not(load: serving.ServiceLoad) -> None:
    found = serving.size_service("llama-3-70B", "h100_80g_sxm", load=load, **SIZED, level="p99", price=2.0)
    best = found.best
    assert best is not None
    assert (found.table["first_token_p99"] <= 1.0).all()
    assert (found.table["per_token_p99"] <= 0.05).all()
    assert found.total == len(found.table) + sum(found.rejected.values())
    size = best["gpus"] // best["deployments"]
    assert best["deployments"] > 1
    for row in found.table.head(5).to_dict("records"):
        assert row["gpus"] >= best["gpus"]
        assert row["headroom"] * load.amount == pytest.approx(row["most_load"])
        replicas = row["deployments"] * row["replicas"]
        # Little's law, of whom some wait for a place or a pass.
        assert row["in_flight"] * replicas <= row["served_rate"] * row["request_mean"] * (1 + 1e-9)
    assert best["cost_per_h"] == pytest.approx(2.0 * best["gpus"])
    assert best["cost_per_million_served"] == pytest.approx(
        best["cost_per_h"] / 3600 / (best["served_rate"] * 256) * 1e6
    )
    fewer = serving.size_service(
        "llama-3-70B", "h100_80g_sxm", load=load, **SIZED, level="p99", num_procs=int(best["gpus"] - size)
    )
    same = ("tensor_par", "pipeline_par", "weight_bits", "kv_bits", "launch")
    held = {tuple(row[name] for name in same) for row in fewer.table.to_dict("records")}
    assert tuple(best[name] for name in same) not in held
    assert fewer.rejected["too_few_gpus"] > 0


def sized(**changes: Any) -> ServiceSizing:
    given: dict[str, Any] = {**SIZED, "load": serving.ServiceLoad(request_rate=200.0), **changes}
    return serving.size_service("llama-3-8B", "h100_80g_sxm", **given)


def gpus(found: ServiceSizing) -> float:
    return math.inf if found.best is None else found.best["gpus"]


def test_harder_questions_never_need_fewer_gpus() -> None:
    easy = gpus(sized())
    assert gpus(sized(level="mean")) <= easy
    assert gpus(sized(time_per_output_token=0.02)) >= easy
    assert gpus(sized(request_latency=4.0)) >= easy
    assert gpus(sized(load=serving.ServiceLoad(request_rate=400.0))) >= easy
    assert gpus(sized(load=serving.ServiceLoad(request_rate=200.0, arrival_cv=5.0))) >= easy
    assert gpus(sized(limits={"weight_bits": 16})) >= easy
    assert gpus(sized(limits={"batch": 8})) >= easy
    curve = sized().curve
    for name in ("first_token_p99", "per_token_p99", "request_mean"):
        assert curve[name].is_monotonic_increasing
    assert curve["holds"].iloc[0]


@cache
def many_replicas() -> ReplicaProfile:
    """Replicas of every eighth deployment."""
    profile = sized().profile
    return profile.take(np.arange(0, len(profile.most), 8))


@given(
    think=st.one_of(st.just(0.0), st.floats(0.01, 600)),
    variation=st.sampled_from([0.0, 0.5, 1.5]),
    first=st.floats(0.2, 2),
    each=st.floats(0.005, 0.05),
)
@settings(max_examples=15)
def test_stricter_percentiles_never_hold_more_users(think: float, variation: float, first: float, each: float) -> None:
    many = many_replicas()
    load = serving.ServiceLoad(users=1.0, think_s=think, prompt_cv=variation, output_cv=variation)

    def hold(level: str, **more: float) -> npt.NDArray[np.float64]:
        return largest_load(many, load, LatencyLimits(first, each, None, level, **more))[0] * (1 - 1e-6)

    held = [hold(level) for level in ("p50", "p90", "p99")]
    for easy, strict in pairwise([*held, hold("p99", mean_first_token=first / 2, mean_per_token=each / 2)]):
        assert (strict <= easy * (1 + 1e-3)).all()
    # A service has as many deployments as the most users of one need, so that more users need no fewer GPUs, if fewer
    # users hold the limits as well.
    for share in (0.1, 0.5, 0.9, 1.0):
        found = loaded_replicas(many, load, np.maximum(share * held[1], 1e-6), np.ones_like(many.most))
        assert (found.missed(LatencyLimits(first, each, None, "p90", (0.97,) * 3))[held[1] > 0] == 0).all()


def test_more_users_never_need_fewer_gpus() -> None:
    found = [
        gpus(sized(load=serving.ServiceLoad(users=users, think_s=5.0), limits=SMALL))
        for users in (1.0, 60.0, 61.0, 700.0, 5000.0, 5001.0)
    ]
    assert found == sorted(found)
    assert found[-1] > found[0]
    # Users who think longer send fewer requests.
    assert gpus(sized(load=serving.ServiceLoad(users=5000.0, think_s=50.0), limits=SMALL)) < found[-1]


def test_limits_on_means_hold_besides_percentiles() -> None:
    found = sized(load=serving.ServiceLoad(users=900.0, think_s=10.0), mean_time_to_first_token=0.15)
    assert found.best is not None
    assert (found.table["first_token_mean"] <= 0.15).all()
    assert (found.table["first_token_p99"] <= 1.0).all()
    late = sized(mean_time_to_first_token=1e-4)
    assert late.best is None
    assert late.nearest["mean_first_token"].level == "mean"
    assert late.nearest["mean_first_token"].limit == 1e-4


def test_room_for_error_holds_limits_at_the_upper_end_of_measured_ranges() -> None:
    found = sized(room_for_error=True, limits={"engine": ["vllm", "trtllm"]})
    assert found.best is not None
    for engine, rows in found.table.groupby("engine"):
        ranges = serving.figure_ranges(found.model, found.system, {"engine": engine, "batch": None})
        assert (rows["first_token_p99"] * ranges["time_to_first_token"].high <= 1.0).all()
        assert (rows["per_token_p99"] * ranges["time_per_output_token"].high <= 0.05).all()
        assert ranges["time_per_output_token"].high > 1.05
    assert gpus(found) >= gpus(sized(limits={"engine": ["vllm", "trtllm"]}))
    holds = found.curve["holds"]
    assert found.curve["load"][holds].max() <= found.best["most_load"]
    with pytest.raises(WorkloadError, match="No server was measured on GPUs like l40s"):
        serving.size_service("llama-3-8B", "l40s_48g", load=found.load, **SIZED, room_for_error=True)


def test_nothing_holds() -> None:
    found = sized(time_per_output_token=0.0001)
    assert found.best is None
    near = found.nearest["per_token"]
    assert near.latency > near.limit == 0.0001
    assert near.row["tensor_par"] >= 1
    assert not len(found.curve)
    assert sized(most_procs=1).rejected["too_many_gpus"] > 0


@pytest.mark.parametrize("load", [serving.ServiceLoad(request_rate=5.0), serving.ServiceLoad(users=5.0)])
def test_requests_of_one_token_end_with_it(load: serving.ServiceLoad) -> None:
    found = sized(load=load, output=1)
    assert found.best is not None
    for level in LEVELS:
        assert found.best[f"request_{level}"] == pytest.approx(found.best[f"first_token_{level}"], rel=0.1)
    assert found.best["request_mean"] == found.best["first_token_mean"]


def test_trace_of_requests() -> None:
    text = "arrival_s,prompt,output\n0,100,10\n1,300,30\n3,200,20\n6,200,20\n"
    found = serving.read_trace(text)
    assert (found.prompt, found.output, found.requests) == (200, 20, 4)
    assert found.prompt_cv == pytest.approx(math.sqrt(5000) / 200)
    assert found.request_rate == pytest.approx(0.5)
    assert found.arrival_cv == pytest.approx(math.sqrt(2 / 3) / 2)
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,100,10\n2023-11-16 18:17:05,300,30\n"
    assert serving.read_trace(azure).request_rate == pytest.approx(1 / 1.02004)
    assert serving.read_trace("prompt,output\n5,7\n").request_rate is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no CSV table"),
        ("a,b\n1,2\n", "has no column prompt or ContextTokens or input_tokens; its columns are a, b"),
        ("prompt,output\n", "has no requests"),
        ("prompt,output\n5,x\n", "row 1: output is 'x'; it must be from 1"),
        ("prompt,output,arrival_s\n5,5,1\n5,5,0\n", "row 2 arrives before row 1"),
        ("prompt,output,arrival_s\n5,5,1\n5,5,1\n", "all requests arrive at once"),
        ("prompt,output,arrival_s\n5,5,1\n5,5,soon\n", "row 2: arrival_s is 'soon', which is no time of arrival"),
    ],
)
def test_traces_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        serving.read_trace(text)


def test_services_that_are_refused() -> None:
    with pytest.raises(WorkloadError, match="either request_rate, requests per second, or users"):
        serving.ServiceLoad()
    with pytest.raises(WorkloadError, match="request_rate is 0"):
        serving.ServiceLoad(request_rate=0.0)
    with pytest.raises(WorkloadError, match="arrival_cv is nan"):
        serving.ServiceLoad(request_rate=1.0, arrival_cv=math.nan)
    with pytest.raises(WorkloadError, match="level is 'p95'; it must be one of mean, p50, p90, p99"):
        sized(level="p95")
    with pytest.raises(ServingLimitError, match="leave the limit on replicas out"):
        sized(limits={"replicas": 2})
    with pytest.raises(ServingLimitError, match="batch cannot be 5,000 or more; a replica serves at most 4,096"):
        sized(limits={"batch": {"min": 5000}})
    assert "leave some limits out" in sized(limits={"tensor_par": 3}).obstacle
    with pytest.raises(ServingLimitError, match="most_procs is 0"):
        sized(most_procs=0)
