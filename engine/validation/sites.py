"""Networks of the sites where runs were measured, from the words of the row.

A row may print the rate of its links to the scale-out networks, the size of its scale-up domain and of its hosts; other
values stay at the accelerator's datasheet.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from engine.cost_models.calibrated import LARGEST_HOST
from engine.executions.arrays import Floats

__all__ = ["describe_sites", "rate_per_processor", "states_domain"]

_DOMAIN = r"(\d+)-GPU\b|\bNVL(\d+)"
_PAIRS = "x4 per GPU pairs"


def describe_sites(table: pd.DataFrame, sizes: Floats, bandwidths: Floats, host_links: Floats) -> None:
    """Changes the networks of cases, in place, to what each row says of its site.

    Args:
        table: the runs [rows].
        sizes: processors that a network of each tier connects, from the innermost, as the accelerator's datasheet has
            them [tiers, rows]. The second tier is kept free for hosts of several domains: it comes as large as the
            first.
        bandwidths: rates of these networks [bytes/s] [tiers, rows].
        host_links: rates of the links between processor and host [bytes/s] [rows].
    """
    hosts = table["gpus_per_node"].to_numpy(np.float64)
    for row, (up, out, source) in enumerate(zip(table["scaleup"], table["scaleout"], table["source"], strict=True)):
        if rate := rate_per_processor(str(out), hosts[row]):
            # Whatever leaves a host does so over these links. Beyond a single network there is the spare tier only.
            bandwidths[min(2, len(bandwidths) - 1) :, row] = rate
        if (size := re.search(_DOMAIN, str(up))) and float(size[1] or size[2]) >= 1:
            sizes[:2, row] = float(size[1] or size[2])
        elif hosts[row] < sizes[0, row] <= LARGEST_HOST:
            # A smaller host than usual: switched links end where it ends. Rack-wide domains span hosts.
            sizes[:2, row] = hosts[row]
        # Jean Zay: four NVLinks between each pair of GPUs use up all twelve, so hosts hold two groups of four.
        if _PAIRS in str(up) or "BigScience tr11" in str(source):
            sizes[:2, row] = 4.0, 8.0
            bandwidths[1, row] = host_links[row]
    np.maximum.accumulate(sizes, axis=0, out=sizes)


def states_domain(text: str) -> bool:
    """Return True if words for a scale-up network state the size of its domain.

    Args:
        text: words for a network.
    """
    return _PAIRS in text or re.search(_DOMAIN, text) is not None


def rate_per_processor(text: str, host: float) -> float | None:
    """Returns the bytes per second and direction of one processor's network, from words such as "8x400Gb/s IB".

    None where they name no rate, or one of 0.

    Args:
        text: words for a network.
        host: processors of a host; not a number where unknown.
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
