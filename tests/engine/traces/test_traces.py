"""Traces: figures of published ones, sets of intervals against counting, and files that are no traces."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine.traces as traces
from engine.questions.registry import answer
from engine.traces.intervals import intersect, measure, share_exposed, subtract, unite
from engine.traces.kernel_classes import class_of_kernel, list_rules

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())
GROUPS = {"tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline", "dp": "data"}


def event(**changes: Any) -> dict[str, Any]:
    """A kernel of 5 microseconds."""
    return {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": {}} | changes


def written(folder: Path, text: str | bytes, name: str = "trace.json") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", EXPECTED)
def test_figures_of_published_traces(name: str) -> None:
    assert same(traces.read(DATA / f"{name}.json.gz").figures(), EXPECTED[name]["expected"])


def same(found: Any, expected: Any) -> bool:
    """Equal, times within a nanosecond of rounding."""
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        return all(same(found[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        return all(map(same, found, expected))
    if isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1.1e-3)
        return True
    assert found == expected
    return True


@pytest.mark.parametrize("name", [name for name in EXPECTED if "exposed_us_per_step" in EXPECTED[name]])
def test_exposed_communication_by_group_as_constructed(name: str) -> None:
    found = traces.read(DATA / f"{name}.json.gz")
    assert isinstance(found, traces.Trace)
    (groups,) = found.exposed_by_group()
    exposed = {group: value["exposed_us"] for group, value in groups.items()}
    assert exposed == {GROUPS[key]: 3 * value for key, value in EXPECTED[name]["exposed_us_per_step"].items()}
    assert sum(exposed.values()) == pytest.approx(found.figures()["whole"]["comm_exposed_us"])


def test_the_same_events_from_nsight_have_the_same_times() -> None:
    found, expected = (
        traces.read(DATA / "synthetic_nsys.sqlite").figures(),
        EXPECTED["synthetic_moe_3d_rank0"]["expected"],
    )
    assert same(found["whole"], expected["whole"])
    assert same(found["phase_sum_us_by_launch"], expected["phase_sum_us_by_launch"])
    for one, other in zip(found["steps"], expected["steps"], strict=True):
        assert same(one["launched"], other["launched"])
    named = {"AllGather": (9, 360.0), "ReduceScatter": (3, 300.0), "SendRecv": (15, 360.0)}
    assert {name: (each["events"], each["sum_us"]) for name, each in found["comm_ops"].items()} == named
    summary = traces.read(DATA / "synthetic_nsys_kern_sum.csv").figures()
    assert (summary["kernel_sum_us"], summary["comm_us"]) == (2580.0, 1020.0)


def test_timers_of_megatron() -> None:
    found = traces.read(DATA / "megatron_timers.txt").figures()
    assert found == json.loads((DATA / "expected_timers.json").read_text())


def test_the_rank_that_computes_longer_is_not_blamed_on_the_network() -> None:
    found = traces.read([DATA / "synthetic_moe_3d_rank3.json.gz", DATA / "synthetic_moe_3d_rank0.json.gz"])
    compared = found.figures()["across_ranks"]
    assert list(compared["compute_s"]) == ["0", "3"]
    assert compared["compute_s"]["3"] - compared["compute_s"]["0"] == pytest.approx(60e-6)
    assert compared["matched_collectives"] == 27
    assert compared["waiting_s"] == {"0": 0.0, "3": 0.0}


def test_a_packed_folder_is_the_ranks_of_a_job(tmp_path: Path) -> None:
    names = [f"synthetic_moe_3d_rank{rank}.json.gz" for rank in (0, 3)]
    with zipfile.ZipFile(tmp_path / "ranks.zip", "w") as packed:
        for name in names:
            packed.write(DATA / name, f"../{name}")
    assert traces.read(tmp_path / "ranks.zip").figures() == traces.read([DATA / name for name in names]).figures()
    with pytest.raises(traces.TraceError, match="both of rank 0"):
        traces.read([DATA / names[0], DATA / names[0]])


@pytest.mark.parametrize("rule", list_rules(), ids=lambda rule: rule.pattern.pattern[:40])
def test_each_rule_fits_its_example_first(rule: Any) -> None:
    assert class_of_kernel(rule.example) == rule.kernel_class


@pytest.mark.parametrize(
    ("name", "kernel_class"),
    [
        ("void at::native::elementwise_kernel<128, at::native::{lambda(float)#1}>(int)", "elementwise"),
        ("fbgemm_gpu::permute_2D_data_kernel(int)", "embedding"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16>(int)", "elementwise"),
        ("void vllm::reshape_and_cache_flash_kernel<float>(int)", "elementwise"),
        ("void grouped_gemm::cuda::fp8_ptp128c_kernel<int>(int)", "gemm"),
        ("something_new", "other"),
    ],
)
def test_names_inside_names(name: str, kernel_class: str) -> None:
    assert class_of_kernel(name) == kernel_class


SETS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12)


@given(SETS, SETS, SETS)
def test_sets_of_intervals_by_counting(one: list[Any], other: list[Any], hiding: list[Any]) -> None:
    def cells(intervals: list[Any]) -> set[int]:
        return {moment for start, length in intervals for moment in range(start, start + length)}

    def union(intervals: list[Any]) -> Any:
        starts = np.array([start for start, _ in intervals], np.int64)
        return unite(starts, starts + np.array([length for _, length in intervals], np.int64))

    a, b, c = cells(one), cells(other), cells(hiding)
    assert measure(union(one)) == len(a)
    assert intersect(union(one), union(other)) == len(a & b)
    assert subtract(union(one), union(other)) == len(a - b)
    shares, together = share_exposed([union(one), union(other)], union(hiding))
    assert together == len((a & b) - c)
    assert shares == [len((a - b) - c) + len((a & b) - c) / 2, len((b - a) - c) + len((a & b) - c) / 2]


HOSTILE = {
    "empty": (b"", "no trace"),
    "no JSON": (b"hello", "no trace"),
    "deep": (b'{"traceEvents": ' + b"[" * 100_000, "levels deep"),
    "large number": (
        json.dumps({"traceEvents": [event()]}).replace('"ts": 10', '"ts": 1e999').encode(),
        "no work|not JSON",
    ),
    "digits": (b'{"traceEvents": [{"ts": ' + b"9" * 5_000 + b"}]}", "100 digits"),
    "exponent": (b'{"traceEvents": [{"ts": 1e99999999999999999999}]}', "not JSON"),
    "escape": (b'{"traceEvents": [{"name": "\\x"}]}', "not JSON"),
    "no device": (json.dumps({"traceEvents": [event(cat="cpu_op")]}).encode(), "no work of a GPU"),
    "database": (b"SQLite format 3\0" + b"\0" * 5_000, "Nsight"),
    "cut zip": (b"PK\x03\x04" + b"\0" * 50, "unpacked"),
    "zip bomb": (gzip.compress(b'{"traceEvents": [' + b" " * 300_000_000), "times its size"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_trace_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    content, told = HOSTILE[name]
    with pytest.raises(traces.TraceError, match=told) as caught:
        traces.read(written(tmp_path, content))
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_what_can_be_read_of_a_damaged_trace_is_read_and_told(tmp_path: Path) -> None:
    good = [event(ts=10 * number) for number in range(50)]
    bad = [event(dur=-1), event(dur=0), event(ts="soon"), event(dur=None), "text", event(name="x" * 100_000)]
    text = json.dumps({"traceEvents": [*good, *bad]}).replace('"args": {}', '"args": {"occupancy": NaN}', 1)
    found = traces.read(written(tmp_path, text))
    assert found.figures()["gpu_events"] == 51
    assert any("5" in remark and "no readable time" in remark for remark in found.remarks)
    assert any("not numbers" in remark for remark in found.remarks)
    cut = traces.read(written(tmp_path, text[: len(text) // 3]))
    assert 0 < cut.figures()["gpu_events"] < 51
    assert any("ends in the middle" in remark for remark in cut.remarks)


def test_times_keep_their_nanoseconds_and_order_does_not_matter(tmp_path: Path) -> None:
    """Microseconds since 1970 with three decimals, which floats do not hold."""
    listed = [event(ts=0, dur=0, name=f"k{number}") for number in range(3)]
    text = json.dumps(list(reversed(listed)))
    for number in range(3):
        whole = f"1767189312000{number:03d}.{number}07"
        text = text.replace(
            f'"name": "k{number}", "pid": 0, "tid": 7, "ts": 0, "dur": 0',
            f'"name": "k{number}", "pid": 0, "tid": 7, "ts": {whole}, "dur": 0.001',
        )
    figures = traces.read(written(tmp_path, text)).figures()
    assert (figures["whole"]["window_us"], figures["whole"]["busy_us"]) == (2.201, 0.003)


def test_the_command_prints_what_the_library_reads(shardscape: Any) -> None:
    path = str(DATA / "synthetic_moe_3d_rank0.json.gz")
    code, out, _ = shardscape("trace", path, "--json")
    assert code == 0
    printed = json.loads(out)
    assert same(
        {name: printed[name] for name in EXPECTED["synthetic_moe_3d_rank0"]["expected"]},
        EXPECTED["synthetic_moe_3d_rank0"]["expected"],
    )
    code, out, _ = shardscape("trace", path)
    assert code == 0
    assert "Step 1.00 ms" in out
    assert "expert" in out
    code, _, err = shardscape("trace", path + ".missing")
    assert code == 2
    assert "There is no file" in err


RUN: dict[str, Any] = {
    "model": "llama-3-70B",
    "system": "h100_80g_sxm",
    "cost_model": "calibrated",
    "execution": {
        "num_procs": 64,
        "tensor_par": 4,
        "pipeline_par": 4,
        "data_par": 4,
        "batch_size": 64,
        "microbatch_size": 1,
        "datatype": "bfloat16",
        "activation_recompute": "full",
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "fused_activation": True,
        "attention_type": "multihead",
        "pipeline_interleaving": 1,
        "optimizer_sharding": True,
        "tensor_par_comm_type": "rs_ag",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    },
}
PREDICTED = {
    "forward": ("fw_time",),
    "backward": ("bw_time",),
    "recomputation": ("recompute_time",),
    "tensor": ("tp_comm_exposed_time", "recomm_exposed_time"),
    "pipeline": ("pp_comm_exposed_time",),
    "data": ("dp_comm_exposed_time",),
    "optimizer": ("optim_step_time",),
    "idle": ("bubble_time", "overhead_time"),
}
DESCRIBED = {"tensor": "TENSOR_MODEL_PARALLEL_GROUP", "pipeline": "PIPELINE_MODEL_PARALLEL_GROUP", "data": "fsdp"}


def trace_of(parts_s: dict[str, float], steps: int = 3) -> str:
    """A trace of steps that consist of these parts, one after the other."""
    events: list[dict[str, Any]] = []
    total, moment = sum(parts_s.values()) * 1e6, 0.0
    for step in range(steps):
        begin = moment = step * total
        events.append(event(cat="user_annotation", name=f"ProfilerStep#{step}", ts=begin, dur=total, tid=1))
        for number, (part, seconds) in enumerate(parts_s.items()):
            correlation, length = 1 + len(events), seconds * 1e6
            around = {
                "backward": "autograd::engine::evaluate_function: MmBackward0",
                "recomputation": "autograd::engine::evaluate_function: CheckpointFunctionBackward",
                "optimizer": "Optimizer.step#AdamW.step",
            }.get(part)
            # All is launched at the start of the step, one call after the other.
            launch = {"ts": begin + number / 10, "dur": 0.05, "tid": 1}
            events.append(
                event(cat="cuda_runtime", name="cudaLaunchKernel", args={"correlation": correlation}, **launch)
            )
            if around:
                category = "cpu_op" if "autograd" in around else "user_annotation"
                events.append(event(cat=category, name=around, **launch))
            args: dict[str, Any] = {"correlation": correlation}
            if part in DESCRIBED:
                args |= {"Collective name": "allreduce", "Process Group Description": DESCRIBED[part]}
            if part != "idle" and length:
                name = "ncclDevKernel_AllReduce_Sum" if part in DESCRIBED else "nvjet_hsh_128x256"
                events.append(event(name=name, ts=moment, dur=length, args=args))
            moment += length
    # The last step lasts to the end of its last kernel.
    events.append(event(cat="cuda_runtime", name="cudaLaunchKernel", args={"correlation": 10**6}, ts=begin + 1, tid=1))
    events.append(event(ts=moment - 0.001, dur=0.001, args={"correlation": 10**6}))
    return json.dumps({"traceEvents": events})


def test_a_trace_of_the_models_own_parts_differs_in_nothing() -> None:
    setting = {name: RUN[name] for name in ("model", "system", "cost_model")}
    asked = {**setting, "executions": [RUN["execution"]], "statistics": ["all"]}
    (row,) = answer("evaluate", asked)["executions"]
    parts = {part: sum(row[name] for name in names) for part, names in PREDICTED.items()}
    assert sum(parts.values()) == pytest.approx(row["total_time"])
    found = answer("compare_trace", {**RUN, "text": trace_of(parts)})
    assert found["measured_s"] == pytest.approx(row["total_time"], rel=1e-5)
    assert sum(each["measured_s"] for each in found["rows"]) == pytest.approx(found["measured_s"])
    assert sum(each["predicted_s"] for each in found["rows"]) == pytest.approx(found["predicted_s"])
    assert len(found["sentences"]) == 2
    assert found["sentences"][1].startswith("No row differs")
    longer = answer("compare_trace", {**RUN, "text": trace_of({**parts, "data": parts["data"] + 1.0})})
    assert len(longer["sentences"]) == 2
    assert longer["sentences"][1].startswith("Data-parallel communication: 1 s longer")
    assert "Overlap" in longer["sentences"][1]


@given(
    st.lists(st.tuples(st.sampled_from(["gemm", "comm", "copy"]), st.integers(0, 90), st.integers(1, 20)), min_size=1)
)
def test_parts_of_a_step_add_up_to_it(work: list[Any]) -> None:
    categories = {"gemm": ("kernel", "gemm"), "comm": ("kernel", "ncclKernel"), "copy": ("gpu_memcpy", "Memcpy HtoD")}
    listed = [event(cat=categories[kind][0], name=categories[kind][1], ts=ts, dur=dur) for kind, ts, dur in work]
    found = traces.read_content([("a.json", json.dumps(listed).encode())])
    assert isinstance(found, traces.Trace)
    (step,) = found.terms()
    assert sum(step.parts_s.values()) == pytest.approx(step.window_s, abs=1e-12)
    figures = found.figures()["whole"]
    exposed = sum(value for term, value in step.parts_s.items() if term.endswith("communication"))
    assert exposed == pytest.approx(figures["comm_exposed_us"] / 1e6, abs=1e-12)
    assert step.parts_s.get("copies", 0.0) == pytest.approx(figures["memory_exposed_us"] / 1e6, abs=1e-12)
