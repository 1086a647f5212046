"""One sentence and an exit code for whatever goes wrong on the command line: arguments, files, interrupts, devices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import engine
from engine.cli.main import main
from engine.cli.output import ExitCode
from engine.columns import FIELDS

SMALL = ("explore", "gpt3-13B", "h100_80g_nvl8", "--procs", "8", "--max-batch", "8", "--datatype", "float16")
NAMES = [column.name for column in FIELDS]

HOSTILE = [
    (("evaluate", "gpt3-13B", "a100_80g", "missing.csv"), ExitCode.INPUT, "no file"),
    (("evaluate", "gpt3-13B", "a100_80g", "folder.csv"), ExitCode.INPUT, "folder"),
    (("evaluate", "gpt3-13B", "a100_80g", "pipe.csv"), ExitCode.INPUT, "not a file"),
    (("evaluate", "gpt3-13B", "a100_80g", "noise.csv"), ExitCode.INPUT, "noise.csv"),
    (("evaluate", "gpt3-13B", "a100_80g", "noise.parquet"), ExitCode.INPUT, "noise.parquet"),
    (("evaluate", "gpt3-13B", "a100_80g", "noise.json"), ExitCode.INPUT, "noise.json"),
    (("evaluate", "gpt3-13B", "a100_80g", "empty.csv"), ExitCode.INPUT, "empty.csv"),
    (("evaluate", "gpt3-13B", "a100_80g", "empty.parquet"), ExitCode.INPUT, "empty.parquet"),
    (("evaluate", "gpt3-13B", "a100_80g", "empty.json"), ExitCode.INPUT, "empty.json"),
    (("evaluate", "gpt3-13B", "a100_80g", "deep.json"), ExitCode.INPUT, "nested"),
    (("evaluate", "gpt3-13B", "a100_80g", "digits.json"), ExitCode.INPUT, "digits.json"),
    (("evaluate", "gpt3-13B", "a100_80g", "numbers.json"), ExitCode.INPUT, "23 fields"),
    (("evaluate", "gpt3-13B", "a100_80g", "other.csv"), ExitCode.INPUT, "num_procs"),
    (("evaluate", "gpt3-13B", "a100_80g", "twice.csv"), ExitCode.INPUT, "more than one column tensor_par"),
    (("evaluate", "gpt3-13B", "a100_80g", "ragged.csv"), ExitCode.INPUT, "ragged.csv"),
    (("evaluate", "gpt3-13B", "a100_80g", "book.xlsx"), ExitCode.INPUT, ".parquet"),
    (("evaluate", "gpt3-13B", "noise.json", "header.csv"), ExitCode.INPUT, "noise.json"),
    (("evaluate", "gpt3", "a100_80g", "header.csv"), ExitCode.INPUT, "did you mean"),
    (("evaluate", "gpt3-13B", "a100_80g", "header.csv", "--out", "no/where.csv"), ExitCode.STORE, "where.csv"),
    (("evaluate", "gpt3-13B", "a100_80g", "header.csv", "--out", "folder.csv"), ExitCode.STORE, "folder"),
    (("evaluate", "gpt3-13B", "a100_80g", "header.csv", "--out", "out.xlsx"), ExitCode.INPUT, ".csv or .parquet"),
    (("layers", "gpt3-13B", "a100_80g", "header.csv"), ExitCode.INPUT, "--row"),
    ((*SMALL, "--store", "noise.duckdb"), ExitCode.STORE, "noise.duckdb"),
    ((*SMALL, "--store", "no/where.duckdb"), ExitCode.STORE, "folder"),
    ((*SMALL, "--store", "header.csv"), ExitCode.STORE, ".duckdb"),
    ((*SMALL, "--export", "rows.txt"), ExitCode.INPUT, ".parquet"),
    ((*SMALL, "--export", "no/where.csv"), ExitCode.STORE, "where.csv"),
    ((*SMALL, "--by", "speed"), ExitCode.INPUT, "sample_rate"),
    ((*SMALL, "--limit", "tensor_par"), ExitCode.INPUT, "field=a,b"),
    ((*SMALL, "--limit", "tensors=1"), ExitCode.INPUT, "tensor_par"),
    ((*SMALL, "--datatype", "float7"), ExitCode.INPUT, "float16"),
    ((*SMALL, "--procs", "0"), ExitCode.INPUT, "--procs"),
    ((*SMALL, "--procs", "9" * 30), ExitCode.INPUT, "--procs"),
    (("best", "--scenario", "numbers.json"), ExitCode.INPUT, "an object with named keys"),
    (("best", "--scenario", "noise.json"), ExitCode.INPUT, "noise.json"),
    (("best", "--scenario", "missing.json", "--procs", "8"), ExitCode.INPUT, "no file"),
    (("recommend", "gpt3-13B", "--procs", "8"), ExitCode.INPUT, "SYSTEM, --max-batch, --datatype"),
    (("recommend", *SMALL[1:], "--headroom", "-1"), ExitCode.INPUT, "--headroom"),
    (("standing", "h100_80g_nvl8", "header.csv"), ExitCode.INPUT, "no such row"),
    (("standing", "h100_80g_nvl8", "numbers.json"), ExitCode.INPUT, "23 fields"),
    (("serve", "--store", "noise.duckdb"), ExitCode.STORE, "noise.duckdb"),
    *[
        ((*command, f"{name}.duckdb"), ExitCode.STORE, words)
        for command in ((*SMALL, "--store"), ("serve", "--store"), ("store", "check"))
        for name, words in (
            ("pipe", "a named pipe"),
            ("device", "a device"),
            ("folder", "a folder"),
            ("closed", "read"),
        )
    ],
]


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A folder full of files that are not what their names say."""
    noise = bytes(range(256)) * 40
    files = {
        **{f"noise.{suffix}": noise for suffix in ("csv", "parquet", "json", "duckdb")},
        **{f"empty.{suffix}": b"" for suffix in ("csv", "parquet", "json")},
        "deep.json": b"[" * 100_000,
        "digits.json": b'{"num_procs": ' + b"9" * 10_000 + b"}",
        "numbers.json": b"[1, 2, 3]",
        "other.csv": b"a,b\n1,2\n",
        "twice.csv": (",".join([*NAMES, "tensor_par"]) + "\n" + ",".join("1" * 24) + "\n").encode(),
        "ragged.csv": (",".join(NAMES) + "\n" + ",".join("1" * 23) + "\n1,2\n").encode(),
        "header.csv": (",".join(NAMES) + "\n").encode(),
        "book.xlsx": noise,
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "folder.duckdb").mkdir()
    (tmp_path / "closed.duckdb").write_bytes(noise)
    (tmp_path / "device.duckdb").symlink_to(os.devnull)
    for name in ("pipe.csv", "pipe.duckdb"):
        os.mkfifo(tmp_path / name)
    allowed = os.access  # root may read anything
    monkeypatch.setattr(os, "access", lambda path, mode: "closed" not in str(path) and allowed(path, mode))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(("arguments", "code", "word"), HOSTILE, ids=[" ".join(case[0][3:]) for case in HOSTILE])
def test_one_sentence_for_whatever_is_wrong(shardscape, arguments, code, word):
    found, out, err = shardscape(*arguments)
    assert (found, out) == (code, "")
    assert word in err
    assert err.endswith(".\n")
    assert err.count("\n") == 1
    assert err.isprintable() or err[:-1].isprintable()
    assert "Traceback" not in err


def test_misuse_is_told_with_the_usage(shardscape):
    code, out, err = shardscape("explore", "gpt3-13B", "h100_80g_nvl8", "--procs", "many")
    assert (code, out) == (ExitCode.INPUT, "")
    assert err.startswith("Usage: shardscape explore")
    assert "'--procs'" in err


def test_a_fault_of_our_own_is_one_sentence_too(shardscape, monkeypatch):
    def broken(*arguments, **named):
        raise ZeroDivisionError("division by zero\nmore")

    monkeypatch.setattr(engine, "explore_scenario", broken)
    code, _, err = shardscape(*SMALL)
    assert code == ExitCode.FAULT
    assert err.startswith("Shardscape failed (ZeroDivisionError: division by zero); ")
    assert err.count("\n") == 1
    monkeypatch.setenv("SHARDSCAPE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        main(list(SMALL))


def test_an_interrupt_stops_without_a_traceback_and_stores_nothing(tmp_path):
    """Ctrl-C in the midst of a large exploration: exit code 130, a sentence, and a store without it."""
    store = tmp_path / "results.duckdb"
    command = [
        sys.executable,
        "-m",
        "engine.cli.main",
        "explore",
        "megatron-1T",
        "h100_80g_nvl8",
        "--procs",
        "3072",
        "--max-batch",
        "3072",
        "--datatype",
        "float16",
        "--store",
        str(store),
        "--limit",
        "uneven_pipelines=on",
        "--limit",
        "attention_type=multihead,multiquery",
        "--limit",
        "fused_activation=on,off",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rows = store.with_name("results.rows")
    deadline = time.monotonic() + 60
    while not rows.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "")
    assert err == "Interrupted; nothing was stored.\n"
    with engine.store.Store(store) as opened:
        assert opened.records() == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_output_to_a_full_device_is_told():
    command = f"{sys.executable} -m engine.cli.main systems show a100_80g --json > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        ExitCode.STORE,
        "The output cannot be written: no space left on device.\n",
    )


def test_output_to_a_closed_pipe_ends_quietly():
    command = f"{sys.executable} -m engine.cli.main models list | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
