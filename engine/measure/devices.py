"""PyTorch and the measured device: detection and description."""

from __future__ import annotations

import datetime
import importlib.util
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Final

from engine.measure.samples import Device, MeasureError
from models.documents import shown

__all__ = ["described", "pytorch"]

INSTALL: Final = (
    "Measuring needs PyTorch, which is not installed; install it with "
    "pip install -r .ci/torch.txt, or any build of PyTorch for your accelerator."
)
NVIDIA: Final = {(8, 0): "ampere", (8, 6): "ampere", (8, 9): "ada", (9, 0): "hopper"}
"""Architectures by compute capability; 7.x are Volta and Turing, 10.x and 12.x Blackwell."""
AMD: Final = {"gfx90a": "cdna2", "gfx940": "cdna3", "gfx942": "cdna3", "gfx950": "cdna4"}


def pytorch() -> Any:
    """Returns the module torch. Raises `MeasureError` where it is not installed or does not load."""
    if importlib.util.find_spec("torch") is None:
        raise MeasureError(INSTALL)
    try:
        import torch
    except (ImportError, OSError) as problem:  # a build for another machine
        raise MeasureError(f"PyTorch is installed but does not load: {str(problem).splitlines()[0][:300]}.") from None
    return torch


def described(torch: Any, wanted: str = "auto") -> Device:
    """Returns the device to measure: `wanted` is "auto" (an accelerator where there is one), "cuda" (also ROCm's) or
    "cpu".

    Args:
        torch: the imported PyTorch module.
        wanted: "auto" (an accelerator where there is one), "cuda" (also ROCm's) or "cpu".

    Raises `MeasureError` for an accelerator that is not there.
    """
    if wanted not in ("auto", "cuda", "cpu"):
        raise MeasureError(f"There is no device {shown(wanted)} to measure; it is auto, cuda (also for ROCm) or cpu.")
    there = bool(torch.cuda.is_available())
    if wanted == "cuda" and not there:
        raise MeasureError(
            "There is no accelerator that this PyTorch could use; leave --device out to measure the processor."
        )
    return _describe_accelerator(torch) if there and wanted != "cpu" else _describe_processor(torch)


def _today_text() -> str:
    return datetime.date.today().isoformat()


def _describe_processor(torch: Any) -> Device:
    threads = torch.get_num_threads()
    return Device(
        kind="cpu",
        name=_processor_name(),
        generation="cpu",
        count=1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        datatype="float32",
        software=f"PyTorch {torch.__version__}, {threads} thread{'s' if threads > 1 else ''}, {platform.system()} "
        f"{platform.release()}",
        date=_today_text(),
    )


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return (named or platform.processor() or platform.machine() or "processor")[:200]


def _describe_accelerator(torch: Any) -> Device:
    facts = torch.cuda.get_device_properties(0)
    rocm = torch.version.hip is not None
    wide = torch.cuda.is_bf16_supported(including_emulation=False)
    clock = getattr(facts, "clock_rate", None)  # [kHz]; older versions do not tell
    runtime = f"ROCm {torch.version.hip}" if rocm else f"CUDA {torch.version.cuda}"
    return Device(
        kind="rocm" if rocm else "cuda",
        name=str(facts.name)[:200],
        generation=_find_generation(facts, rocm),
        count=torch.cuda.device_count(),
        memory_bytes=facts.total_memory,
        multiprocessors=facts.multi_processor_count,
        clock_hz=float(clock) * 1e3 if clock else None,
        datatype="bfloat16" if wide else "float16",
        software=f"PyTorch {torch.__version__}, {runtime}, driver {_read_driver_version(rocm)}",
        date=_today_text(),
    )


def _find_generation(facts: Any, rocm: bool) -> str:
    if rocm:
        name = str(getattr(facts, "gcnArchName", "")).partition(":")[0]
        return AMD.get(name, name or "rocm")[:40]
    found = (int(facts.major), int(facts.minor))
    older = "turing" if found == (7, 5) else "volta" if found[0] == 7 else f"sm_{found[0]}{found[1]}"
    return NVIDIA.get(found, "blackwell" if found[0] in (10, 12) else older)


def _read_driver_version(rocm: bool) -> str:
    """Return the version of the driver, "unknown" if it cannot be found."""
    if rocm:
        path = Path("/sys/module/amdgpu/version")
        try:
            return path.read_text(encoding="utf-8").strip()[:40] or "unknown"
        except OSError:
            return "unknown"
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return next(iter(answer.split()), "unknown")[:40]
