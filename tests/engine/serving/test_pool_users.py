"""Pools under a closed load of users: against a simulation, by Little's law, against open loads and all counts."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from engine import serving
from engine.serving.deployments import deployments_of, frame_of
from engine.serving.evaluation import subject_of
from engine.serving.pool_latencies import (
    CacheTransfer,
    PrefillProfile,
    cache_transfers,
    decode_profiles,
    loaded_pools,
    prefill_profiles,
)
from engine.serving.pool_users import UsersOfPools, loaded_pools_of_users
from engine.serving.profiles import ReplicaProfile
from engine.serving.queueing import LEVELS, LatencyLimits
from tests.engine.serving.pool_simulation import SimulatedPools, SimulatedUsers, simulate_pools

REQUESTS: Final = 20_000
ASKED: Final[dict[str, Any]] = {
    "prompt": 1024,
    "output": 256,
    "time_to_first_token": 1.0,
    "time_per_output_token": 0.05,
}
FEW: Final = {"weight_bits": 8, "kv_bits": 8, "launch": "graphs", "pipeline_par": 1, "expert_par": 1}


class Pools(NamedTuple):
    """Pools of one layout, and their users."""

    users: int
    think: float
    prefills: int = 1
    decodes: int = 1
    most: int = 256
    cv: float = 0.0
    output: int = 256

    @property
    def load(self) -> serving.ServiceLoad:
        return serving.ServiceLoad(users=float(self.users), think_s=self.think, prompt_cv=self.cv, output_cv=self.cv)

    def parts(self) -> tuple[PrefillProfile, ReplicaProfile, CacheTransfer]:
        subject = replace(subject_of("llama-3-70B", "h100_80g_sxm"), output_cv=self.cv)
        table = {"tensor_par": 4, "pipeline_par": 1, "batch": 1, "prompt": 1024, "output": self.output}
        d = deployments_of(frame_of({**table, "weight_bits": 8, "kv_bits": 8, "engine": "vllm"}))
        return (
            prefill_profiles(subject, d, np.array([64.0])),
            decode_profiles(subject, d, np.array([float(self.most)])),
            cache_transfers((subject, d), (subject, d), 45e9),
        )

    def loaded(self) -> Any:
        shared = (np.array([float(each)]) for each in (self.users, self.prefills, self.decodes))
        return loaded_pools_of_users(*self.parts(), self.load, UsersOfPools(*shared))

    def simulated(self) -> SimulatedUsers:
        prefill, decode, transfer = self.parts()
        random = np.random.default_rng(3)

        def draw() -> npt.NDArray[np.float64]:
            return random.gamma(1 / self.cv**2, self.cv**2, REQUESTS) if self.cv else np.ones(REQUESTS)

        outputs = np.maximum(1, np.round(draw() * self.output)).astype(np.int64)
        flights = np.maximum(np.arange(self.most + 1.0), 1.0)
        pools = SimulatedPools(
            float(prefill.start[0]),
            float(prefill.each[0]),
            int(prefill.most[0]),
            float(transfer.time[0]),
            decode.take(np.zeros(self.most + 1, np.intp)).at(flights).step.tolist(),
            self.most,
            self.prefills,
            self.decodes,
        )
        return simulate_pools(pools, self.users, self.think, outputs, draw())


@pytest.mark.parametrize(
    "case",
    [
        Pools(300, 20.0),
        Pools(300, 10.0),
        Pools(400, 10.0, 2, 3),
        Pools(100, 1.0, cv=0.8),
        Pools(100, 5.0, output=32),
    ],
)
def test_users_of_pools_match_a_simulation(case: Pools) -> None:
    found, simulated = case.loaded().latencies, case.simulated()
    fixed = float(case.parts()[0].fixed[0])
    assert found.rate[0] * case.decodes == pytest.approx(simulated.rate, rel=0.02)
    assert found.in_flight[0] == pytest.approx(simulated.in_flight, rel=0.1)
    for level, most in (("mean", 1.3), ("p50", 1.3), ("p90", 1.3), ("p99", 1.35)):
        share = LEVELS[level]
        for figure, values, factor in (
            (found.first_token, simulated.first_token + fixed, most),
            (found.per_token, simulated.per_token, 1.05),
            (found.request, simulated.request + fixed, 1.15),
        ):
            value = values.mean() if share is None else np.quantile(values, share)
            assert 1 / factor < figure.level(level)[0] / value < factor, level


@pytest.mark.parametrize("users", [30, 64, 400])
def test_without_a_pause_waits_are_rather_too_long_than_too_short(users: int) -> None:
    """Users who start together stay together in the simulation, which has nothing by chance."""
    case = Pools(users, 0.0)
    found, simulated = case.loaded().latencies, case.simulated()
    assert found.rate[0] == pytest.approx(simulated.rate, rel=0.04)
    assert found.request.mean[0] == pytest.approx(simulated.request.mean(), rel=0.05)
    for level, share in (("p90", 0.9), ("p99", 0.99)):
        assert found.first_token.level(level)[0] > np.quantile(simulated.first_token, share)


@pytest.mark.parametrize("think", [0.0, 0.5, 20.0])
@pytest.mark.parametrize(("prefills", "decodes", "most"), [(1, 1, 256), (3, 1, 16), (1, 4, 256)])
def test_littles_law_holds_up_to_saturation_and_beyond(think: float, prefills: int, decodes: int, most: int) -> None:
    last = 0.0
    for users in (1, 20, 200, 2000, 20_000):
        case = Pools(users, think, prefills, decodes, most)
        loaded = case.loaded()
        found, rate = loaded.latencies, loaded.latencies.rate[0] * decodes
        assert rate * (found.request.mean[0] + think) == pytest.approx(users)
        # Far beyond saturation, the rate is that of saturation to 2 %.
        assert 0.98 * last <= rate <= case.parts()[0].largest_rate[0] * prefills * (1 + 1e-3)
        assert loaded.prefill_busy[0] == pytest.approx(rate / prefills / case.parts()[0].largest_rate[0], rel=2e-3)
        assert found.in_flight[0] <= most
        last = rate


def test_users_who_mostly_think_are_an_open_load() -> None:
    case = Pools(860_000, 86_000.0)
    found = case.loaded().latencies
    rate = np.array([10.0])
    opened = loaded_pools(*case.parts(), serving.ServiceLoad(request_rate=10.0), (rate, rate)).latencies
    for name in ("first_token", "per_token", "request"):
        for level in LEVELS:
            one, other = (getattr(each, name).level(level)[0] for each in (found, opened))
            assert one == pytest.approx(other, rel=0.01)


def size(load: serving.ServiceLoad, **changes: Any) -> serving.PoolSizing:
    given = {**ASKED, **changes}
    return serving.size_pools("llama-3-70B", "h100_80g_sxm", load=load, **given)


@pytest.mark.parametrize("think", [0.0, 15.0])
def test_no_counts_on_fewer_gpus_hold_the_users(think: float) -> None:
    load = serving.ServiceLoad(users=700.0, think_s=think)
    found = size(load, limits={**FEW, "tensor_par": [2, 4], "engine": "vllm"}).best
    assert found is not None
    assert found.figures["headroom"] >= 1.0
    assert found.figures["first_token_p99"] <= 1.0
    assert found.figures["served_rate"] * (found.figures["request_mean"] + think) == pytest.approx(700)
    subject = subject_of("llama-3-70B", "h100_80g_sxm")
    counts = np.array([[p, d] for p, d in itertools.product(range(1, 16), repeat=2)], np.float64)
    limits = LatencyLimits(1.0, 0.05, None, "p99")
    for first, second in itertools.product((2, 4), repeat=2):
        gpus = counts @ np.array([first, second])
        rows = np.flatnonzero(gpus < found.gpus)
        both = []
        for degree in (first, second):
            table = {**FEW, "tensor_par": degree, "batch": 1, "prompt": 1024, "output": 256, "engine": "vllm"}
            both.append(deployments_of(frame_of(table)).take(np.zeros(len(rows), np.intp)))
        places = serving.evaluate("llama-3-70B", "h100_80g_sxm", {**table, "batch": 1}).iloc[0]["largest_batch"]
        many = np.full(len(rows), float(places))
        pairs = loaded_pools_of_users(
            prefill_profiles(subject, both[0], many),
            decode_profiles(subject, both[1], many),
            cache_transfers(
                (subject, both[0]), (subject, both[1]), serving.pools.link_bandwidth((subject.system,) * 2)
            ),
            load,
            UsersOfPools(np.full(len(rows), 700.0), counts[rows, 0], counts[rows, 1]),
        )
        assert (pairs.latencies.missed(limits) != 0).all()


def test_harder_questions_of_users_never_need_fewer_gpus() -> None:
    def gpus(users: float = 900.0, think: float = 10.0, **changes: Any) -> float:
        best = size(
            serving.ServiceLoad(users=users, think_s=think), limits={**FEW, "tensor_par": [2, 4]}, **changes
        ).best
        assert best is not None
        return best.gpus

    easy = gpus()
    assert gpus(level="mean") <= easy
    assert gpus(level="p50") <= easy
    assert gpus(time_per_output_token=0.02) >= easy
    assert gpus(mean_time_to_first_token=0.2) >= easy
    assert gpus(users=1800.0) >= easy
    assert gpus(think=40.0) <= easy
    assert gpus(transfer_gb_per_s=0.2) >= easy
    assert gpus(time_to_first_token=None, time_per_output_token=None, most_procs=64) <= easy


@pytest.mark.parametrize("level", ["mean", "p99"])
def test_many_users_need_no_more_than_copies_of_pools_for_a_few(level: str) -> None:
    limits = {**FEW, "tensor_par": [2, 4], "engine": "vllm"}
    few, many = (
        size(serving.ServiceLoad(users=users), limits=limits, level=level, most_procs=2**20).best
        for users in (2e3, 2e6)
    )
    assert few is not None
    assert many is not None
    assert many.figures["headroom"] >= 1.0
    assert many.gpus <= 1000 * few.gpus


def test_question_and_command_answer_users_with_pools(shardscape: Any) -> None:
    words: tuple[Any, ...] = ("service", "llama-3-70B", "h100_80g_sxm", "--users", 900, "--think", 10, "--prompt", 1024)
    words = (*words, "--output", 256, "--limit", "weight_bits=8", "--limit", "tensor_par=2,4")
    words = (*words, "--limit", "pipeline_par=1", "--limit", "launch=graphs", "--disaggregated", "either")
    code, out, _ = shardscape(*words, "--json")
    document = json.loads(out)
    assert code == 0
    best = document["disaggregated"]["best"]["figures"]
    assert document["users"] == 900
    assert best["served_rate"] * (best["request_mean"] + 10) == pytest.approx(900, rel=1e-6)
    assert "GPUs per user" in document["comparison"]
    code, out, _ = shardscape(*words)
    assert "On the best pools, users send" in out
