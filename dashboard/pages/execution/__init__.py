"""Execution: everything about one execution: time, memory, schedule, layers, networks."""

from dashboard.link.measured import MeasuredLink
from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.execution.link import ExecutionLink

__all__ = ["PAGE"]

PAGE = Page(
    name="execution",
    title="Execution",
    group=NavigationGroup.EXPLORE,
    place=2,
    help="Everything about one execution: time, memory, schedule, layers, networks.",
    tasks=(
        "Get the launch script",
        "See where the time of a step goes",
        "Check whether my throughput is normal",
        "Compare with a profiler trace",
    ),
    needs=Needs.EXPLORATION,
    guide="formulas",
    parameters={
        **page_parameters("execution", ExecutionLink, MeasuredLink),
        "execution_run_tokens": "number of tokens",
        "execution_run_mtbf_h": "time between failures",
        "execution_run_interval_s": "time between checkpoints",
        "execution_run_restart_s": "time to restart",
        "execution_run_storage_gb_per_s": "storage bandwidth",
        "execution_run_bytes_per_parameter": "checkpoint size",
        "execution_run_power_w": "power",
        "execution_run_power_share": "share of the power",
        "execution_run_pue": "power usage effectiveness",
        "execution_run_usd_low": "lowest price",
        "execution_run_usd_high": "highest price",
    },
)
