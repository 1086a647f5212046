"""What is written is what Megatron-LM's own parser takes, where that is installed: `megatron-core` 0.19.2 and torch.

In the normal suite a snapshot of the parser stands for it; here the snapshot itself is checked.
"""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import launch
from engine.launch.launchers import launch_of
from models import Model
from tests.engine.launch.test_layer_patterns import patterns
from tests.engine.launch.test_round_trip import executions

HAS_PARSER = all(importlib.util.find_spec(name) for name in ("torch", "megatron")) and importlib.util.find_spec(
    "megatron.training"
)
pytestmark = pytest.mark.skipif(not HAS_PARSER, reason="megatron-core 0.19.2 with torch is not installed")


def asked(what: str, given: object = None) -> Any:
    program = str(Path(__file__).with_name("megatron_parser.py"))
    told = subprocess.run(
        [sys.executable, program, what], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr[-2000:]
    return json.loads(told.stdout.splitlines()[-1])


def test_the_snapshot_has_every_flag_of_the_parser() -> None:
    document = json.loads((files("engine.launch.megatron") / "parser_flags.json").read_text("utf-8"))
    assert [
        [names, destination, kind, choices, default]
        for names, destination, kind, _, choices, default in document["flags"]
    ] == asked("flags")


def test_the_parser_takes_what_is_written() -> None:
    cases: list[tuple[int, list[str], dict[str, str]]] = []

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(executions())
    def collect(chosen: tuple[str, dict[str, Any]]) -> None:
        model, execution = chosen
        try:
            written = launch.write(execution, model, framework="megatron")
        except launch.LaunchError:
            return
        started = launch_of(written.text, ("--num-layers",))
        assert started is not None
        cases.append((execution["num_procs"], [each.text for each in started.words], dict(started.environment)))

    @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(patterns(), st.sampled_from([1, 2]), st.sampled_from(["none", "full", "attn_only"]))
    def collect_patterns(model: Model, pipeline: int, recompute: str) -> None:
        execution = {"tensor_par": 1, "pipeline_par": pipeline, "data_par": 4, "batch_size": 32, "microbatch_size": 1}
        chosen = {**execution, "activation_recompute": recompute}
        written = launch.write(chosen, model, framework="megatron")
        started = launch_of(written.text, ("--hidden-size",))
        assert started is not None
        cases.append((4 * pipeline, [each.text for each in started.words], dict(started.environment)))

    collect()
    collect_patterns()
    random.shuffle(cases)
    assert [each for each in asked("try", cases) if each] == []
