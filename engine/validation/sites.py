"""Networks of the sites where runs were measured, from the words of the row.

A row may print the rate of its scale-out network, the size of its scale-up domain and of its hosts; what it does not
print stays the accelerator's datasheet value.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["describe_sites", "rate_per_processor"]

LARGEST_HOST = 8.0
"""Processors of the largest usual host; larger scale-up domains are racks."""


def describe_sites(table: pd.DataFrame, values: dict[str, npt.NDArray[np.float64]]) -> None:
    """Networks as the row describes its site, in place."""
    hosts = table["gpus_per_node"].to_numpy(np.float64)
    for row, (up, out, source) in enumerate(zip(table["scaleup"], table["scaleout"], table["source"], strict=True)):
        if rate := rate_per_processor(str(out), hosts[row]):
            values["scale_out_bandwidth"][row] = rate
        if (size := re.search(r"(\d+)-GPU domain|\bNVL(\d+)", str(up))) and float(size[1] or size[2]) >= 1:
            values["domain"][row] = float(size[1] or size[2])
        elif hosts[row] < values["domain"][row] <= LARGEST_HOST:
            # A smaller host than usual: switched links end where it ends. Rack-wide domains span hosts.
            values["domain"][row] = values["host_size"][row] = hosts[row]
        # Jean Zay: four NVLinks between each pair of GPUs use up all twelve, so hosts hold two groups of four.
        if "x4 per GPU pairs" in str(up) or "BigScience tr11" in str(source):
            values["domain"][row] = 4.0
            values["host_size"][row] = 8.0


def rate_per_processor(text: str, host: float) -> float | None:
    """Bytes per second and direction of one processor's network, from words such as "8x400Gb/s IB".

    None where they name no rate, or one of 0.
    """
    if each := re.search(r"(\d+(?:\.\d+)?) ?Gb/s(?: RDMA)? per GPU", text):
        return float(each[1]) / 8.0 * 1e9 or None
    links = re.search(r"(\d+)x\s*(?:[A-Za-z-]+ )?(\d+) ?Gb/s", text)
    whole = re.search(r"(\d+) ?Gb/s[A-Za-z0-9 ]* per node", text)
    if np.isnan(host):
        return None
    if links:
        return float(links[1]) * float(links[2]) / host / 8.0 * 1e9 or None
    return float(whole[1]) / host / 8.0 * 1e9 or None if whole else None
