"""Launch files on the Post-train page: the plan as a file that starts it, and a file of one's own into the fields."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link import state
from dashboard.link.document_validation import Refused
from dashboard.link.fields import LinkField
from dashboard.pages.post_training.choices import split_text
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.launch import draw_written
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.markdown import literal
from engine import launch
from engine.launch.post_training import RUN_SETTINGS, RunReading, read_run_text
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.documents.post_training_launch import RUN_FRAMEWORK_WORDS
from engine.questions.post_training_launch import question_of_run, write_planned_run

__all__ = ["draw_launch_card", "draw_own_file", "link_values"]

MOST_MEGABYTES: Final = 1
_ENDINGS: Final = ("yaml", "yml", "sh", "txt", "slurm", "sbatch")
_CHOSEN: Final = "post_training_framework"
"""Session key of the framework of the launch card."""
_MOST_SENTENCES: Final = 10
_FIELDS: Final[Mapping[str, str]] = {
    "model": "model",
    "num_procs": "num_procs",
    "method": "method",
    "prompts": "prompts",
    "group": "group",
    "prompt_tokens": "prompt_tokens",
    "response.mean": "mean",
    "response.cap": "cap",
    "updates": "updates",
    "steps": "steps",
    "mode": "mode",
    "staleness": "staleness",
    "synchronisation": "synchronisation",
    "split": "split",
    "rollout.datatype": "rollout_datatype",
    "rollout.tensor_par": "rollout_tensor_par",
    "rollout.memory_share": "rollout_memory_share",
    "rollout.max_sequences": "rollout_max_sequences",
}
"""Fields of the page by setting of a run."""


@st.fragment
def draw_launch_card(question: PostTrainingQuestion, best: Mapping[str, Any]) -> None:
    """Draw the launch file of a mode: framework, file, and what the framework cannot express.

    Args:
        question: of the page.
        best: mode of its answer.
    """
    with st.container(border=True, gap="xsmall", key="post_training_launch_card"):
        st.html(markup.head("Launch", "this plan as a file of a training framework"))
        usual = "verl" if question.framework == "verl" else "nemo-rl"
        names = list(RUN_FRAMEWORK_WORDS)
        framework = st.selectbox(
            "Framework",
            names,
            names.index(usual),
            key=_CHOSEN,
            width=280,
            format_func=lambda name: RUN_FRAMEWORK_WORDS[name],
        )
        try:
            made = write_planned_run(question, best, str(framework))
        except launch.LaunchError as refused:
            st.info(literal(str(refused)), icon=":material/block:")
            return
        draw_written(made, "post_training_launch")
        st.caption(
            f"For {made.title} {literal(made.version)}. `shardscape plan post-training --launch {made.framework}` "
            "searches only executions that it runs."
        )


@st.fragment
def draw_own_file(fields: Mapping[str, LinkField]) -> None:
    """Draw the field for a launch file, the run in it, and the button that takes its values into the page's fields.

    Args:
        fields: of the page by name.
    """
    with st.expander("Open your own launch file", icon=":material/upload_file:", key="post_training_own"):
        file = file_field(
            f"Configuration or script, up to {MOST_MEGABYTES} MB",
            _ENDINGS,
            "post_training_own_file",
            MOST_MEGABYTES,
            help="YAML of NeMo-RL, scripts of verl and slime. Nothing in it is run.",
        )
        name, content = ("", b"") if file is None else (file.name, file.getvalue())
        if file is None:
            text = st.text_area(
                "Or paste it",
                key="post_training_own_text",
                height=120,
                max_chars=MOST_MEGABYTES * 1_000_000,
                placeholder="python3 -m verl.trainer.main_ppo data.train_batch_size=512 ...",
            )
            name, content = "", (text or "").encode()
        if not content.strip():
            return
        try:
            _draw_run(read_file(_read_run, content, name, int(fields["prompt_tokens"].value)), name, fields)
        except (Refused, ValueError) as problem:
            st.error(literal(str(problem)), icon=":material/error:")


def _read_run(content: bytes, name: str, prompt: int) -> RunReading:
    """Return the run of a file. No file has the length of prompts: the page's counts, and is named as open."""
    return read_run_text(content, name or "The pasted text", stated={"prompt_tokens": prompt})


def _draw_run(found: RunReading, name: str, fields: Mapping[str, LinkField]) -> None:
    model = found.settings.get("model") or found.checkpoint or "a model that it does not name"
    st.html(markup.head(f"{found.title}: {model}", f"options as of {found.version}"))
    values = link_values(found, fields)
    labels = {path: label for path, label in RUN_SETTINGS.items() if _FIELDS.get(path) in values}
    st.html(
        markup.chips([(label, _show(fields[_FIELDS[path]], found.settings[path])) for path, label in labels.items()])
    )
    if found.refused:
        st.warning(literal(f"{found.title} would not start: {found.refused}."), icon=":material/block:")
    _, missing, assumed = question_of_run(found)
    lacking = [path for path in (*missing, *assumed) if path in _FIELDS and path != "response.mean"]
    kept = ["Mean response", "Prompt length", *(RUN_SETTINGS[path] for path in lacking)]
    st.caption(literal(f"The file does not say: {', '.join(kept)}. The fields above keep their values."))
    others = [RUN_SETTINGS[path] for path in found.settings if path not in _FIELDS]
    command = (
        f"shardscape import {shlex.quote(name or 'FILE')} --set mean=MEAN --set prompt_tokens=PROMPT --system SYSTEM"
    )
    if others or found.layout:
        beyond = ", ".join([*others, "training layout"])
        st.caption(f"{literal(f'Not among the fields: {beyond}. This command plans them:')} `{command}`")
    link: dict[str, str | None] = {fields["split"].parameter: None}  # a former one is of other GPUs
    link |= {
        fields[field].parameter: split_text(value) if field == "split" else fields[field].text(value)
        for field, value in values.items()
    }
    if was_clicked("Use in the fields", icon=":material/input:", key="post_training_own_use"):
        state.set_url_values(link)
        st.rerun()  # the fields are outside this fragment
    _draw_sentences(launch.LIST_TITLES["not_modelled"], found.not_modelled)
    _draw_sentences("Not read", found.unread)
    _draw_sentences("Remarks", found.remarks)


def link_values(found: RunReading, fields: Mapping[str, LinkField]) -> dict[str, Any]:
    """Return the values of a run for the page's fields, by field; values that a field cannot have are left out.

    Args:
        found: run of a launch file.
        fields: of the page by name.
    """
    values = {}
    for path, name in _FIELDS.items():
        field, value = fields.get(name), found.settings.get(path)
        if field is None or value is None or path == "prompt_tokens":
            continue
        if field.options and not set(value if isinstance(value, list) else [value]) <= set(field.options):
            continue
        values[name] = value
    return values


def _show(field: LinkField, value: Any) -> str:
    """Return a value in the words of its field."""
    if isinstance(value, list):
        return " : ".join(f"{each:,}" for each in value)
    return f"{value:,}" if isinstance(value, int) else field.options.get(value, str(value))


def _draw_sentences(heading: str, sentences: Sequence[str]) -> None:
    if not sentences:
        return
    st.html(markup.head(heading))
    more = len(sentences) - _MOST_SENTENCES
    lines = [f"- {literal(each)}" for each in sentences[:_MOST_SENTENCES]]
    st.caption("\n".join([*lines, *([f"- and {more} more"] if more > 0 else [])]))
