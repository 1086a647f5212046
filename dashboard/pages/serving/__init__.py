"""Serving: how to run a trained model for its users, with which latencies, throughput and cost."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="serving",
    title="Serving",
    group=NavigationGroup.SERVE,
    place=1,
    help="The best way to serve a model: latency, throughput, memory and cost.",
    needs=Needs.NOTHING,
    guide="serving",
    parameters={
        "serving_model": "model",
        "serving_system": "system",
        "serving_procs": "number of GPUs",
        "serving_prompt": "prompt length",
        "serving_output": "output length",
        "serving_ttft": "limit on the first token",
        "serving_tpot": "limit per token",
        "serving_price": "price",
        "serving_weight_bits": "bits of the weights",
        "serving_kv_bits": "bits of the KV cache",
        "serving_launch": "launch modes",
        "serving_by": "order",
        "serving_only": "selection",
        "serving_columns": "switch for all columns",
        "serving_id": "deployment",
    },
)
