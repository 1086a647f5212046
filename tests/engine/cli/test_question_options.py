"""Commands have an option for every field of their question: a field is declared once, in the question's document."""

from __future__ import annotations

from typing import Any, Final

import pytest
import typer

from engine.cli.main import app
from engine.questions import VERBS
from engine.questions.fields import QuestionField, question_fields

COMMANDS: Final = {
    "explore": "explore",
    "best": "best",
    "recommend": "recommend",
    "evaluate": "evaluate",
    "operations": "layers",
    "what_if": "what-if",
    "sensitivity": "what-if",
    "compare": "compare",
    "cost": "cost",
    "plan_run": "plan run",
    "plan_day": "plan day",
    "plan_fleet": "plan fleet",
    "plan_post_training": "plan post-training",
    "plan_fine_tuning": "plan fine-tuning",
    "find_deployments": "inference",
    "size_service": "service",
    "compare_servers": "servers",
    "plan_layers": "plan layers",
    "plan_operators": "plan operators",
    "plan_elastic": "plan elastic model",
    "plan_card": "plan elastic best",
    "card_curve": "plan elastic curve",
    "card_phases": "plan elastic timeline",
    "split_gpus": "plan elastic split",
    "replay_workload": "plan elastic replay",
    "card_accuracy": "plan elastic accuracy",
    "fit_card": "plan elastic fit",
    "compare_losses": "plan elastic losses",
    "simulate_schedule": "simulate schedule",
    "simulate_execution": "simulate execution",
    "simulate_distir": "simulate distir",
    "codesign": "codesign",
    "export_post_training": "plan post-training",
    "import_post_training": "import",
    "export_deployment": "export",
    "import_deployment": "import",
    "export_launch": "export",
    "import_launch": "import",
    "compare_trace": "trace",
    "standing": "standing",
    "normal": "normal",
    "validate": "validate",
    "calibrate": "calibrate",
}
"""Command of each verb; lists of the library have commands of their own form."""
LISTS: Final = {"list_models", "list_systems", "list_columns", "list_parameters", "list_schedules", "list_cards"}
READ_OTHERWISE: Final = {
    **{verb: {"statistics"} for verb in ("explore", "best", "evaluate", "compare")},  # commands print all
    "plan_fleet": {"pools", "jobs", "services"},  # FLEET.json
    "plan_run": {"phases"},  # FILE in place of the model
    "plan_layers": {"model", "profile_name"},  # PROFILE|MODEL
    "plan_card": {"measurements"},  # CARD=TRACE
    "split_gpus": {"system"},
    "replay_workload": {"models", "jobs"},  # of the workload's file
    "simulate_schedule": {"schedule", "order", "actions"},  # NAME|FILE; text forms print actions
    "simulate_execution": {"actions"},
    "simulate_distir": {"measurements"},  # --measured FILE
    "plan_post_training": {"rollout", "training", "speculation"},  # options of their own, such as --rollout-tp
    "export_post_training": {"rollout", "training", "speculation"},
    "import_post_training": {"text", "name", "files"},  # FILE, and the recipes that it starts from
    "import_launch": {"text", "name"},  # FILE
    "import_deployment": {"text", "name"},
    "compare_trace": {"text", "name"},  # FILE...
    "export_deployment": {"deployment"},  # FILE
    "validate": {"predictions"},  # --runs FILE
    "calibrate": {  # --scenario FILE
        *("model", "num_procs", "max_batch_size", "datatype", "limits", "cost_model", "calibration"),
        *("attention", "framework", "adapter_rank", "adapter_targets", "frozen_weight_bits", "loss_chunk"),
        "sample_lengths",
    },
}
"""Fields that a command takes in another form, such as from a file."""


def command_words(path: str) -> set[str]:
    """Return options and names of arguments of a command."""
    command: Any = typer.main.get_command(app)
    for word in path.split():
        command = command.get_command(typer.Context(command), word)
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return options | {each.name for each in command.params}


def asked_fields(verb: str) -> list[QuestionField]:
    """Return the fields of a verb's question, those of its scenario in place of the scenario."""
    found = question_fields(VERBS[verb].asks)
    inside = found["scenario"].nested if "scenario" in found else None
    rest = [field for name, field in found.items() if inside is None or name != "scenario"]
    return [*(question_fields(inside).values() if inside is not None else ()), *rest]


def test_every_verb_has_a_command() -> None:
    assert set(VERBS) == {*COMMANDS, *LISTS}


@pytest.mark.parametrize(("verb", "path"), COMMANDS.items())
def test_every_field_of_a_question_is_an_option(verb: str, path: str) -> None:
    words = command_words(path)
    missing = {
        field.name
        for field in asked_fields(verb)
        if not field.is_fixed and f"--{field.option}" not in words and field.name not in words
    }
    assert missing == READ_OTHERWISE.get(verb, set())


def test_help_names_options_instead_of_fields() -> None:
    names = {field.name for verb in VERBS.values() for field in question_fields(verb.asks).values()}
    for path in sorted(set(COMMANDS.values())):
        command: Any = typer.main.get_command(app)
        for word in path.split():
            command = command.get_command(typer.Context(command), word)
        for each in command.params:
            fields = {name for name in names if f"`{name}`" in (each.help or "")}
            assert not fields, f"shardscape {path}: {each.help}"
