"""Serving: how to run a trained model for its users, with which latencies, throughput and cost."""

from dashboard import state
from dashboard.serving_view import render

render(state.theme_mode())
