"""Commands of `shardscape`: place and line of help of each, so that only the command asked for is loaded.

A test holds the lines against the commands' own help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

__all__ = ["COMMANDS", "CommandEntry"]


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Place and summary of a command, or of a group of commands."""

    module: str
    """Module in `engine.cli.commands`."""
    attribute: str
    """Function of the command, or application of the group."""
    summary: str

    def load(self) -> Any:
        """Import the module and return the function or the application."""
        return getattr(import_module(f"engine.cli.commands.{self.module}"), self.attribute)


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    "serve": CommandEntry("serve", "serve_dashboard", "Start the dashboard and open it in a browser."),
    "explore": CommandEntry("explore", "explore_space", "Evaluate every execution of a model on a number of GPUs."),
    "best": CommandEntry(
        "best",
        "find_best",
        "Find the execution with the highest throughput, proven, without evaluating them all.",
    ),
    "recommend": CommandEntry(
        "recommend",
        "recommend_execution",
        "Recommend the execution to run: the simplest that is as fast as the best within the error.",
    ),
    "compare": CommandEntry(
        "compare",
        "compare_files",
        "Compare two to four saved scenarios: what differs, the best execution of each, gains against the first.",
    ),
    "what-if": CommandEntry(
        "what_if",
        "change_scenario",
        "Change hardware, model or size and search the whole space again: the gain, and the best execution then.",
    ),
    "evaluate": CommandEntry("evaluate", "evaluate_executions", "Evaluate executions that a file lists."),
    "layers": CommandEntry(
        "layers",
        "show_layers",
        "Show what each layer of a block computes and keeps, for one microbatch on one processor.",
    ),
    "standing": CommandEntry(
        "standing",
        "rank_execution",
        "Rank an execution among all of its model, system, GPUs, batch and datatype, with steps to the recommended.",
    ),
    "normal": CommandEntry(
        "normal",
        "judge_throughput",
        "Say whether a throughput is normal: the prediction, your measurement, and the nearest measured runs.",
    ),
    "trace": CommandEntry(
        "trace",
        "show_trace",
        "Show where the time of a profiled step went.",
    ),
    "export": CommandEntry(
        "launch",
        "export_execution",
        "Write an execution for a training framework, or a deployment for a serving engine: every flag and file.",
    ),
    "inference": CommandEntry(
        "inference",
        "find_serving",
        "Recommend how to serve a model: deployment, time to first token, time per token, throughput, memory, cost.",
    ),
    "service": CommandEntry(
        "service",
        "find_service",
        "Find the fewest GPUs that serve so many users or requests per second within limits of latency.",
    ),
    "servers": CommandEntry(
        "servers",
        "show_servers",
        "Compare a deployment with your own benchmark results and the nearest measured servers; measure factors.",
    ),
    "cost": CommandEntry(
        "cost",
        "estimate_cost",
        "Tell what training so many tokens takes: time, processor-hours, cost, energy, goodput.",
    ),
    "codesign": CommandEntry(
        "codesign",
        "run_codesign",
        "Run a study of many designs of a machine, each point one proven optimum, and print the best ones.",
    ),
    "validate": CommandEntry(
        "validate",
        "validate_model",
        "Predict measured training runs with the calibrated model and say how far off it is.",
    ),
    "calibrate": CommandEntry(
        "calibrate",
        "calibrate_model",
        "Fit a few parameters of the calibrated model to measured runs of one system.",
    ),
    "measure": CommandEntry(
        "measure",
        "measure_machine",
        "Measure this machine's accelerator: matrix products, attention, memory, collectives, launches.",
    ),
    "mcp": CommandEntry(
        "mcp",
        "serve_mcp",
        "Answer questions of programs that speak the Model Context Protocol (MCP), over standard input and output.",
    ),
    "import": CommandEntry(
        "launch",
        "import_configuration",
        "Read a launch configuration: its model, number of GPUs and execution, and everything that could not be read.",
    ),
    "papers": CommandEntry(
        "papers",
        "show_papers",
        "Reproduce a figure of a paper: our values, the published ones, and the deviation.",
    ),
    "models": CommandEntry("library", "models_app", "Models: list the library, show one, check files."),
    "systems": CommandEntry("library", "systems_app", "Systems: list the library, show one, check files."),
    "simulate": CommandEntry(
        "simulate", "simulate_app", "Simulations: pipeline schedules event by event, and DistIR's grid."
    ),
    "store": CommandEntry("store", "store_app", "Result stores: check one, repair or drop what is damaged."),
    "plan": CommandEntry(
        "plan",
        "plan_app",
        "Plans: a training run, post-training, a day of a service, a fleet, layers, elastic training, operators.",
    ),
}
