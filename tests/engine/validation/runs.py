"""Small tables of runs to spoil."""

from __future__ import annotations

from typing import Any

import pandas as pd

GOOD: dict[str, Any] = {
    "id": "good",
    "source": "Somewhere",
    "framework": "Megatron-LM",
    "hardware": "H100-80GB-SXM",
    "hidden": 4096,
    "ffn": 14336,
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "vocab": 128256,
    "seq_len": 8192,
    "gated_mlp": True,
    "tied_embeddings": False,
    "num_gpus": 64,
    "tp": 2,
    "pp": 2,
    "dp": 16,
    "cp": 1,
    "vpp": 1,
    "mbs": 1,
    "gbs": 256,
    "recompute": "none",
    "seq_parallel": True,
    "zero_stage": 1,
    "fsdp": False,
    "dtype": "bf16",
    "step_time_s": 3.0,
}


def table(*changes: dict[str, Any], drop: tuple[str, ...] = ()) -> pd.DataFrame:
    """One good row per change, with that change."""
    rows = [{**GOOD, "id": f"row{i}", **change} for i, change in enumerate(changes or ({},))]
    return pd.DataFrame(rows).drop(columns=list(drop))
