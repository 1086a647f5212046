"""`shardscape simulate`: a schedule as table, JSON and CSV, files for others, a sentence for what cannot be."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from engine import Scenario
from engine.cost_models.chunk_times import microbatches_of
from engine.exploration.proven_optimum import best_of
from engine.simulate import NAMES, replay
from engine.simulate.execution_stages import cuts_of, execution_times, pipelined
from engine.simulate.stage_replay import stage_replay

Answer = tuple[int, str, str]
Command = Callable[..., Answer]
PLAIN = ("schedule", "interleaved", "--stages", "4", "--microbatches", "8", "--chunks", "2", "--send-time", "0.1")


@pytest.fixture
def command(shardscape: Command) -> Command:
    return partial(shardscape, "simulate")


def test_a_schedule_is_told_as_the_engine_replays_it(command: Command) -> None:
    found = replay(
        "interleaved",
        stages=4,
        microbatches=8,
        chunks=2,
        times={"F": 1, "B": 1, "W": 1},
        sends={"mode": "overlap", "c": 0.1},
    )
    code, out, _ = command(*PLAIN)
    assert code == 0
    assert "makespan 58.4 s" in out
    assert "critical path: 19 F + 19 BW + 14 c" in out
    code, out, _ = command(*PLAIN, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["makespan"] == pytest.approx(found.makespan)
    assert document["ranks"] == found.ranks
    assert document["closed_form"]["makespan"] == pytest.approx(58.4)
    assert sum(document["idle"].values()) == pytest.approx(4 * found.makespan - found.busy.sum())
    code, out, _ = command(*PLAIN, "--csv")
    assert len(pd.read_csv(io.StringIO(out))) == len(found.tasks)


def test_files_for_others_are_written_and_an_order_is_read(command: Command, tmp_path: Path) -> None:
    trace, order = tmp_path / "trace.json", tmp_path / "order.csv"
    code, _, err = command(*PLAIN, "--trace", trace, "--torch-csv", order)
    assert code == 0
    assert "trace.json is written" in err
    assert {event["ph"] for event in json.loads(trace.read_text())} == {"X"}
    code, out, _ = command("schedule", order, *PLAIN[2:], "--json")
    assert code == 0
    assert json.loads(out)["makespan"] == pytest.approx(58.4)


def test_all_schedules_are_listed(command: Command) -> None:
    code, out, _ = command("schedules", "--json")
    assert code == 0
    assert [each["name"] for each in json.loads(out)] == list(NAMES)
    assert command("schedules")[1].count("\n") > len(NAMES)


SCENARIO = (
    "execution",
    "llama-3-8B",
    "h100_80g_sxm",
    "--procs",
    "16",
    "--max-batch",
    "32",
    "--datatype",
    "bfloat16",
    "--limit",
    "tensor_par=2",
    "--limit",
    "pipeline_par=4",
)


def test_an_execution_is_replayed_with_the_stages_of_its_model(command: Command, tmp_path: Path) -> None:
    code, out, err = command(*SCENARIO, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    scenario = Scenario.of(
        "llama-3-8B",
        "h100_80g_sxm",
        num_procs=16,
        max_batch_size=32,
        datatype="bfloat16",
        limits={"tensor_par": 2, "pipeline_par": 4},
    )
    best = pipelined(scenario)
    assert (told["stages"], told["microbatches"]) == (best["pipeline_par"], microbatches_of(best)) != (1, 1)
    times = execution_times(scenario, best)
    (cut,) = (each for each in cuts_of(times.account, times.ranks, times.chunks, None) if each.chunks == times.chunks)
    stages = cut.stages
    work = microbatches_of(best) * sum(each.forward + each.input_gradient + each.weight_gradient for each in stages)
    assert sum(told["busy"]) == pytest.approx(work, rel=1e-9)
    without = stage_replay(best, times.account)
    assert without is not None
    code, out, _ = command(*SCENARIO, "--send-mode", "none", "--json")
    assert json.loads(out)["makespan"] == pytest.approx(without.replayed, rel=1e-12)
    assert without.replayed < told["makespan"]
    # The same execution by its id and from a file, and another schedule of it.
    file = tmp_path / "best.json"
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in best.items()}
    file.write_text(json.dumps(plain))
    number = best_of(scenario)["id"]
    assert "id" not in best
    for named in (("--id", str(number)), ("--execution", str(file))):
        code, out, err = command(*SCENARIO, *named, "--json")
        assert (code, err, json.loads(out)["makespan"]) == (0, "", told["makespan"])
    code, out, err = command(*SCENARIO, "--schedule", "zb-auto-1p", "--microbatches", "8")
    assert code == 0
    assert "planned with the mean of all stages" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--id", "999999999999"), "ids run from 0"),
        (("--id", "0", "--execution", "x.json"), "not both"),
        (("--layout", "t*4|"), "must begin with the embedding"),
        (("--chunks", "0"), "--chunks is 0; it must be a whole number from 1"),
        (("--schedule", "nonesuch"), "There is no schedule"),
    ],
)
def test_what_no_execution_can_be_replayed_as_is_one_sentence(
    command: Command, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = command(*SCENARIO, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing", "--stages", "4", "--microbatches", "8"), "no schedule"),
        (("interleaved", "--stages", "4", "--microbatches", "10", "--chunks", "2"), "Megatron refuses M mod g = 2"),
        (("1f1b", "--stages", "4", "--microbatches", "10000000"), "at most 500,000"),
        (("1f1b", "--stages", "4", "--microbatches", "8", "--forward", "fast"), "--forward, entry 1, is 'fast'"),
        (("1f1b", "--stages", "4", "--microbatches", "8", "--forward", "1,2"), "4 stages"),
        (("1f1b", "--stages", "4", "--microbatches", "8", "--send-mode", "slow"), "'none', 'overlap' or 'block'"),
        (("missing.csv", "--stages", "4", "--microbatches", "8"), "cannot be read"),
    ],
)
def test_what_cannot_be_is_one_sentence(command: Command, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = command("schedule", *arguments)
    assert code == 2
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
