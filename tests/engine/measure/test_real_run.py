"""The benchmarks themselves, small, on this machine's processor: they need PyTorch."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import hardware
from engine.cost_models.calibrated import case_of, library_calibration, parameters_of, step_times
from engine.measure import MeasureError, MeasurementProgress, Samples, measure, measured_calibration, measured_system
from engine.measure.benchmarks import Benchmarks
from engine.measure.devices import described
from engine.measure.exchanges import ExchangeError, timed_exchanges
from models import load as load_model
from tests.engine import forked

pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[measure]'")

TOLD: list[MeasurementProgress] = []


@pytest.fixture(scope="module")
def samples() -> Samples:
    TOLD.clear()
    return measure(device="cpu", quick=True, seconds=2.0, threads=1, progress=TOLD.append)


def test_every_kind_is_timed(samples: Samples) -> None:
    assert samples.device.kind == "cpu"
    assert samples.device.datatype == "float32"
    assert "PyTorch" in samples.device.software
    assert samples.products
    assert {each.kind for each in samples.transfers} == {"copy", "triad"}
    assert {each.kind for each in samples.launches} == {"kernel", "block_forward", "block"}
    assert samples.attentions
    assert {each.ranks for each in samples.exchanges} == {2}
    assert {each.kind for each in samples.exchanges} == {"all_reduce", "all_gather"}


def test_timings_are_those_of_real_work(samples: Samples) -> None:
    """Bounds that any processor keeps, however busy: rates between those of decades ago and of none that exists."""
    assert all(1e7 < each.rate < 1e14 for each in samples.products)
    assert all(1e6 < each.rate < 2e13 for each in samples.transfers)
    times = {each.operations: each.time.seconds for each in samples.products}
    assert times[max(times)] > 5 * times[min(times)]
    blocks = {each.kind: each.time.seconds for each in samples.launches}
    assert blocks["kernel"] < blocks["block_forward"]
    assert all(each.both.seconds > 0 for each in samples.attentions)
    assert all(1e-6 < each.time.seconds < 60 for each in samples.exchanges)


def test_progress_counts_to_the_end(samples: Samples) -> None:
    assert samples.products
    assert [each.done for each in TOLD] == list(range(TOLD[0].total))
    left = [each.seconds_left for each in TOLD]
    assert left == sorted(left, reverse=True)
    assert left[0] == pytest.approx(2.0)


def test_the_documents_predict_steps(samples: Samples, tmp_path: Path) -> None:
    system = measured_system(samples, None, "here")
    calibration = measured_calibration(samples, system, "here")
    assert hardware.load_document(hardware.to_document(system)) == system
    measured = {name for name, value in calibration.parameters.items() if value.kind == "measured"}
    assert {"memory", "kernel_start"} <= measured
    # On a machine that is busy enough, a value comes out that the model does not take: it says so.
    refused = [note for note in calibration.notes if "does not take" in note]
    assert "sustained_other" in measured or any("sustained_other" in note for note in refused)
    assert calibration.parameters["sustained_other"].value <= 1.5
    execution = {
        "tensor_par": [1],
        "pipeline_par": [1],
        "data_par": [1],
        "microbatch_size": [1],
        "batch_size": [1],
        "datatype": ["bfloat16"],  # the model knows no wider products; a processor's float32 rate stands for them
    }
    case = case_of(load_model("gpt3-1.3B"), system, execution)
    found, usual = (step_times(case, parameters_of(each)).step for each in (calibration, library_calibration()))
    assert np.isfinite(found).all()
    assert not np.allclose(found, usual)


def test_products_in_eight_bits_are_called_as_pytorch_wants_them() -> None:
    """They are timed on accelerators only; the processor runs the same call, slowly."""
    import torch

    bench = Benchmarks(torch, described(torch, "cpu"))
    assert not bench.eight_bit
    assert bench.product("float8", (64, 128, 64), 0.01).operations == 2 * 64 * 128 * 64


def test_one_process_skips_collectives_with_its_reason() -> None:
    found = measure(device="cpu", quick=True, seconds=1.0, threads=1, ranks=1)
    assert not found.exchanges
    assert [(each.what, each.reason) for each in found.skipped if each.what == "collectives"] == [
        ("collectives", "a single process has nobody to exchange with")
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"device": "abacus"}, "no device 'abacus'"),
        ({"ranks": 0}, "--ranks is 0; it must be from 1 to 64"),
        ({"ranks": 65}, "--ranks is 65"),
        ({"threads": 0}, "--threads is 0"),
        ({"seconds": 0.1}, "--seconds is 0.1"),
        ({"seconds": float("nan")}, "--seconds is nan"),
    ],
)
def test_numbers_out_of_range_are_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(MeasureError, match=told):
        measure(**{"device": "cpu", "quick": True, **given})  # type: ignore[arg-type]


def test_an_accelerator_that_is_not_there_is_refused() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(MeasureError, match="no accelerator"):
        measure(device="cuda")


def test_ranks_that_fail_are_told_with_their_last_words() -> None:
    with pytest.raises(ExchangeError, match=r"rank \d ended with: .*abacus"):
        timed_exchanges((1024,), ranks=1, backend="abacus", seconds=0.2, threads=1)


def processes(mark: Path) -> list[int]:
    """Processes whose arguments name a path: the ranks are told where to meet."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(mark).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_for(condition: object, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.1)
    return False


def exchanging(mouth: Connection, folder: Path) -> None:
    """Times exchanges for minutes; its ranks meet in a folder."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background has it ignored
    tempfile.tempdir = str(folder)
    with pytest.raises(KeyboardInterrupt):
        timed_exchanges((1024,), ranks=2, backend="gloo", seconds=300.0, threads=1)
    mouth.send("interrupted")


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_outlives_the_process_that_started_it(tmp_path: Path, ended_by: signal.Signals) -> None:
    parent, ear = forked.start(exchanging, tmp_path)
    try:
        assert wait_for(lambda: len(processes(tmp_path)) == 2, 60)
        assert parent.pid
        os.kill(parent.pid, ended_by)
        assert forked.finish(parent, ear) == (["interrupted"] if ended_by == signal.SIGINT else [])
        assert wait_for(lambda: not processes(tmp_path), 30)
    finally:
        parent.kill()


def measuring(mouth: Connection, folder: Path, out: Path, err: Path) -> None:
    """Runs the command, and tells when its benchmarks are there."""
    from engine.cli.main import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    prepare = Benchmarks.__init__

    def prepared(self: Benchmarks, *arguments: object) -> None:
        prepare(self, *arguments)  # type: ignore[arg-type]
        mouth.send("begun")

    Benchmarks.__init__ = prepared  # type: ignore[assignment,method-assign]
    main(["measure", "--device", "cpu", "--seconds", "300", "--out", str(folder)])


def test_an_interrupted_command_writes_nothing(tmp_path: Path) -> None:
    folder, out, err = (tmp_path / name for name in ("results", "out", "err"))
    folder.mkdir()
    started, ear = forked.start(measuring, folder, out, err)
    try:
        assert ear.poll(60)
        assert ear.recv() == "begun"
        time.sleep(0.3)
        assert started.pid
        os.kill(started.pid, signal.SIGINT)
        forked.finish(started, ear)
    finally:
        started.kill()
    assert (started.exitcode, out.read_text(), err.read_text()) == (130, "", "Interrupted.\n")
    assert not list(folder.iterdir())
