"""The vector engine and the scalar oracle agree on random models, systems and executions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from engine.executions import reasons
from tests import oracle
from tests.properties import worlds
from tests.properties.comparison import assert_engine_agrees, frame
from tests.reference import CALIBRATED_ONLY


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> worlds.Files:
    return worlds.Files(Path(tmp_path_factory.mktemp("drawn")))


@given(random=st.randoms(use_true_random=False))
def test_drawn_by_hypothesis(files: worlds.Files, random: Random) -> None:
    shape, machine = worlds.model(random), worlds.system(random)
    executions = [worlds.execution(random, shape, machine, broken=0.2) for _ in range(random.randint(1, 5))]
    assert_engine_agrees(shape, machine, executions, files)


@pytest.mark.parametrize("mode", ["roofline", "no_overlap"])
def test_many_drawn_from_a_seed(files: worlds.Files, mode: str) -> None:
    random = Random(f"bulk {mode}")
    running = total = 0
    for _ in range(18):
        shape, machine = worlds.model(random), worlds.system(random, mode)
        executions = [worlds.execution(random, shape, machine) for _ in range(60)]
        running += assert_engine_agrees(shape, machine, executions, files)
        total += len(executions)
    assert running > total / 5  # the comparison of numbers must not be empty


def test_draws_reach_every_reason() -> None:
    """A property over draws that never reach a case says nothing about it."""
    random = Random("coverage")
    seen: Counter[str] = Counter()
    features: Counter[str] = Counter()
    for _ in range(80):
        shape, machine = worlds.model(random), worlds.system(random)
        for _ in range(30):
            drawn = worlds.execution(random, shape, machine, broken=0.4)
            outcome = oracle.evaluate(shape, machine, drawn)
            if outcome[0] != "ok":
                seen[outcome[1]] += 1
                continue
            features["three tiers"] += len(machine["networks"]) >= 3
            features["no second tier"] += machine["mem2"]["GiB"] == 0
            features["roofline"] += machine["processing_mode"] == "roofline"
            features["inference"] += not drawn["training"]
            features["multiquery"] += drawn["attention_type"] == "multiquery"
            features["uneven pipeline"] += shape["num_blocks"] % drawn["pipeline_par"] != 0
            features["offload"] += drawn["weight_offload"] or drawn["activations_offload"] or drawn["optimizer_offload"]
            features["interleaved"] += drawn["pipeline_interleaving"] > 1
            features["gradient overlap"] += drawn["data_par_overlap"]
            features["tiled"] += drawn["tensor_par_overlap"] != "none"
    unseen = {reason.code for reason in reasons.REASONS} - CALIBRATED_ONLY - set(seen)
    assert unseen <= {"missing_value", "not_an_integer", "not_a_boolean", "not_a_word", "out_of_range"}, unseen
    assert min(features.values()) >= 10, features


def test_three_tiers_with_one_parallelism_on_each(files: worlds.Files) -> None:
    random = Random("tiers")
    shape = {"hidden": 4096, "feedforward": 16384, "seq_size": 2048}
    shape |= {"attn_heads": 32, "attn_size": 128, "num_blocks": 32}
    machine = worlds.system(random)
    machine["networks"] = [{**worlds.system(random)["networks"][0], "size": 2**16} for _ in range(3)]
    machine["networks"][1]["must_be_filled"] = True
    executions = []
    for _ in range(200):
        drawn = worlds.execution(random, shape, machine, broken=0)
        executions.append(drawn)
    assert len({(e["tensor_par_net"], e["pipeline_par_net"], e["data_par_net"]) for e in executions}) == 27
    assert assert_engine_agrees(shape, machine, executions, files) > 40


def test_sizes_beyond_all_measure(files: worlds.Files) -> None:
    """The oracle's integers have no limit; the engine's sizes must not wrap around."""
    random = Random("huge")
    running = 0
    for _ in range(8):
        shape, machine = worlds.model(random), worlds.system(random)
        executions = [worlds.execution(random, shape, machine, broken=0) for _ in range(30)]
        worlds.enlarge(random, shape, machine, executions)
        running += assert_engine_agrees(shape, machine, executions, files)
    assert running > 100


def test_one_execution_alone_and_among_others(files: worlds.Files) -> None:
    """What a row says does not depend on the rows around it, however many there are."""
    random = Random("company")
    shape, machine = worlds.model(random), worlds.system(random)
    executions = [worlds.execution(random, shape, machine) for _ in range(64)]
    model, system = files.path(shape), files.path(machine)
    together = engine.evaluate(model, system, frame(executions * 150))  # several chunks
    for number in range(0, 64, 7):
        alone = engine.evaluate(model, system, frame([executions[number]]))
        for repeat in (0, 137, 149):
            among = together.iloc[[number + 64 * repeat]].reset_index(drop=True)
            assert alone.astype(object).equals(among.astype(object))
