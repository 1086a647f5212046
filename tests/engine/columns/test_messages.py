"""What a person wrote comes back shortened and on one line in whatever is said about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import engine
from engine import serving
from engine.cli.limits import parse_limits
from engine.columns import by_name
from engine.executions.limits import normalise as normalise_of

LONG = "x" * 50_000 + "\n\x1b[31m" + "9" * 10_000
SCENARIO = ("megatron-126M", "a100_80g", "--procs", 8, "--max-batch", 8, "--datatype", "float16")
SERVING = ("llama-3-8B", "h100_80g_sxm", "--num-procs", 8, "--prompt", 8, "--output", 8)
LIMITS = (
    LONG,
    f"{LONG}=1",
    f"tensor_par={LONG}",
    f"tensor_par=1..{LONG}",
    f"tensor_par={LONG}..",
    f"weight_offload={LONG}",
    f"attention_type={LONG}",
    f"uneven_pipelines={LONG}",
    "tensor_par=1",
    f"={LONG}",
)

COMMANDS: list[tuple[Any, ...]] = [
    *(
        (command, *SCENARIO, "--limit", text, "--limit", "tensor_par=1")
        for command in ("explore", "best")
        for text in LIMITS
    ),
    *(("inference", *SERVING, "--limit", text, "--limit", "tensor_par=1") for text in LIMITS),
    ("explore", *SCENARIO, "--by", LONG),
    ("explore", *SCENARIO, "--cost-model", LONG),
    ("explore", *SCENARIO, "--calibration", LONG),
    ("inference", *SERVING, "--by", LONG),
    ("explore", LONG, *SCENARIO[1:]),
    ("explore", SCENARIO[0], LONG, *SCENARIO[2:]),
    ("explore", *SCENARIO[:-1], LONG),
    ("explore", *SCENARIO, "--export", LONG),
    ("validate", "--runs", LONG),
    ("validate", "--out", LONG),
    ("calibrate", LONG, "--system", "h100_80g_sxm"),
    ("calibrate", "--system", LONG, "a"),
    ("measure", "--device", LONG),
    ("measure", "--name", LONG),
    ("evaluate", *SCENARIO[:2], LONG),
    ("layers", *SCENARIO[:2], LONG),
    ("models", "show", LONG),
    ("systems", "show", LONG),
]


def normalise(limits: Any) -> dict[str, Any]:
    return normalise_of(limits, "calculon")


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_a_command_repeats_little_of_what_it_does_not_understand(shardscape: Any, number: int) -> None:
    code, out, err = shardscape(*COMMANDS[number])
    assert code in (2, 3), err[:500]
    assert out == ""
    assert len(err) < 3_000, err[:500]
    assert "\x1b" not in err


CALLS: dict[str, Callable[[], Any]] = {
    "column": lambda: by_name(LONG),
    "limit": lambda: normalise({LONG: 1}),
    "value of a limit": lambda: normalise({"attention_type": LONG}),
    "text of a limit": lambda: parse_limits([LONG]),
    "workers": lambda: engine.explore(
        "megatron-126M", "a100_80g", num_procs=8, max_batch_size=8, datatype="float16", workers=LONG
    ),  # type: ignore[arg-type]
    "k": lambda: engine.best("megatron-126M", "a100_80g", num_procs=8, max_batch_size=8, datatype="float16", k=LONG),  # type: ignore[arg-type]
    "num_procs": lambda: engine.best(
        "megatron-126M",
        "a100_80g",
        num_procs=LONG,  # type: ignore[arg-type]
        max_batch_size=8,
        datatype="float16",
    ),
    "cost model": lambda: engine.evaluate("megatron-126M", "a100_80g", None, cost_model=LONG),  # type: ignore[arg-type]
    "serving limit": lambda: serving.explore(
        "llama-3-8B", "h100_80g_sxm", num_procs=8, prompt=8, output=8, limits={"launch": LONG}
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_repeats_little_of_what_it_does_not_understand(name: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as refused:
        CALLS[name]()
    assert len(str(refused.value)) < 2_500
    assert str(refused.value).isprintable()
