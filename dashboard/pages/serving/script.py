"""Serving: how to run a trained model for its users, with which latencies, throughput and cost."""

from dashboard.link import state
from dashboard.pages.serving.view import render

render(state.theme_mode())
