"""`shardscape inference` prints, exports and refuses what the engine does."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from engine import serving

ARGUMENTS = ("inference", "llama-3-70B", "h100_80g_sxm", "--num-procs", "8", "--prompt", "1000", "--output", "200")
SAME = {"num_procs": 8, "prompt": 1000, "output": 200}
LEVEL = {"time_to_first_token": 1.0, "time_per_output_token": 0.05}
"""Limits of a question that states none [s]."""


def test_json_is_the_engines_answer(shardscape):
    texts = ("tensor_par=2,4,8", "batch=..64", "launch=graphs", "kv_bits=8")
    limits = [word for text in texts for word in ("--limit", text)]
    code, out, _ = shardscape(*ARGUMENTS, *limits, "--ttft", "0.3", "--tpot", 0.03, "--price", 3, "--top", 2, "--json")
    document = json.loads(out)
    expected = serving.explore(
        "llama-3-70B",
        "h100_80g_sxm",
        **SAME,
        time_to_first_token=0.3,
        time_per_output_token=0.03,
        price=3.0,
        limits={"tensor_par": [2, 4, 8], "batch": {"max": 64}, "launch": "graphs", "kv_bits": 8},
    )
    assert code == 0
    assert document["kind"] == "modelled"
    assert (document["total"], document["feasible"]) == (expected.total, expected.feasible)
    assert document["rejected_by_reason"] == expected.rejected
    assert document["best"]["id"] == expected.best["id"]
    assert document["best"]["cost_per_million_tokens"] == pytest.approx(expected.best["cost_per_million_tokens"])
    assert [row["id"] for row in document["top"]] == expected.top(2)["id"].tolist()
    frontier = json.loads(shardscape(*ARGUMENTS, "--frontier", "--json")[1])["frontier"]
    everything = serving.explore("llama-3-70B", "h100_80g_sxm", **SAME, **LEVEL)
    assert [row["id"] for row in frontier] == everything.frontier["id"].tolist()


def test_text(shardscape):
    code, out, err = shardscape(*ARGUMENTS, "--top", 3)
    assert code == 0
    assert err == ""
    assert "figures are modelled" in out
    assert "out/GPU [tokens/s]" in out
    assert "Best by output per GPU" in out
    code, out, _ = shardscape(*ARGUMENTS, "--top", 1, "--by", "time_to_first_token")
    assert "Best by time to first token" in out


def test_nothing_runs(shardscape):
    code, out, _ = shardscape(*ARGUMENTS, "--tpot", "0.0001")
    assert code == 1
    assert "Tokens too slow, nearest: An output token takes" in out
    code, out, _ = shardscape("inference", "deepseek-v3", "l40s_48g", "--num-procs", 2, "--prompt", 9, "--output", 9)
    assert code == 1
    assert "GiB too much" in out
    code, out, _ = shardscape(*ARGUMENTS, "--limit", "tensor_par=3")
    assert code == 1
    assert "leave some limits out" in out
    long = ("inference", "gpt2-small", "h100_80g_sxm", "--num-procs", 1, "--prompt", 1000, "--output", 100)
    code, out, _ = shardscape(*long, "--limit", "batch=1")
    assert code == 1
    assert "1,100 tokens together, but the model's context ends at 1,024; shorten them by 76 tokens" in out
    assert "leave some limits out" not in out
    code, out, _ = shardscape(*long[:4], 25, *long[5:], "--limit", "tensor_par=25")
    assert code == 1
    assert "TP does not divide the heads; leave some limits out" in out


@pytest.mark.parametrize(("suffix", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_export(shardscape, tmp_path, suffix, read):
    path = tmp_path / f"rows.{suffix}"
    code, _, err = shardscape(*ARGUMENTS, "--top", 0, "--export", path)
    assert code == 0
    assert str(path) in err
    rows, expected = read(path), serving.explore("llama-3-70B", "h100_80g_sxm", **SAME, **LEVEL).table
    assert rows.columns.tolist() == expected.columns.tolist()
    assert rows["id"].tolist() == expected["id"].tolist()
    assert rows["launch"].tolist() == expected["launch"].tolist()
    assert rows["decode_step_time"].tolist() == pytest.approx(expected["decode_step_time"].tolist())


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--limit", "tp=1"), 2, "no limit on 'tp'"),
        (("--limit", "tensor_par=x"), 2, "whole number"),
        (("--limit", "weight_bits=5"), 2, "16, 8, 4"),
        (("--by", "speed"), 2, "--by is 'speed'; it must be one of tokens_per_s_per_processor"),
        (("--ttft", "0"), 2, "--ttft is 0.0; it must be a number from 1e-06"),
        (("--tpot", "nan"), 2, "it must be a number from 1e-06"),
        (("--price", "-1"), 2, "--price is -1.0; it must be a number from 0"),
        (("--export", "rows.xlsx"), 2, "must end in"),
        (("--export", "/nowhere/rows.csv"), 3, "cannot be written"),
    ],
)
def test_refusals_are_one_sentence(shardscape, arguments, code, told):
    found, out, err = shardscape(*ARGUMENTS, *arguments)
    assert (found, out) == (code, "")
    assert told in err
    assert err.count("\n") == 1
