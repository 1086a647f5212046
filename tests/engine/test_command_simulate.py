"""`shardscape simulate`: a schedule as table, JSON and CSV, files for others, a sentence for what cannot be."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from engine.simulate import NAMES, replay

Answer = tuple[int, str, str]
Command = Callable[..., Answer]
PLAIN = ("schedule", "interleaved", "--stages", "4", "--microbatches", "8", "--chunks", "2", "--send-time", "0.1")


@pytest.fixture
def command(shardscape: Command) -> Command:
    return partial(shardscape, "simulate")


def test_a_schedule_is_told_as_the_engine_replays_it(command: Command) -> None:
    found = replay("interleaved", stages=4, microbatches=8, chunks=2, times={"F": 1, "B": 1, "W": 1},
                   sends={"mode": "overlap", "c": 0.1})  # fmt: skip
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


@pytest.mark.parametrize(("arguments", "words"), [
    (("nothing", "--stages", "4", "--microbatches", "8"), "no schedule"),
    (("interleaved", "--stages", "4", "--microbatches", "10", "--chunks", "2"), "Megatron refuses M mod g = 2"),
    (("1f1b", "--stages", "4", "--microbatches", "10000000"), "at most 500,000"),
    (("1f1b", "--stages", "4", "--microbatches", "8", "--forward", "fast"), "--forward must be a number"),
    (("1f1b", "--stages", "4", "--microbatches", "8", "--forward", "1,2"), "4 stages"),
    (("1f1b", "--stages", "4", "--microbatches", "8", "--send-mode", "slow"), "none, overlap or block"),
    (("missing.csv", "--stages", "4", "--microbatches", "8"), "cannot be read"),
])  # fmt: skip
def test_what_cannot_be_is_one_sentence(command: Command, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = command("schedule", *arguments)
    assert code == 2
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
