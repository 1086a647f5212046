"""An execution or a deployment as the configuration that starts it: a card, and the same behind a button."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.queries.frameworks import obstacles
from dashboard.widgets.frameworks import draw_framework_best
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from engine import Scenario, launch
from engine.executions.frameworks.registry import ANY
from hardware import System
from models import Model

__all__ = ["card", "chosen_framework", "deployment_card", "draw_written", "popover"]

_CHOSEN: Final = "launch_framework"
"""Key of the session's last chosen framework, common to all pages."""
_FOLLOWED: Final = "launch_framework_followed"
"""Key of the framework of the last scenario that was drawn."""
_TARGET: Final = "launch_target"
_ENGINE: Final = "launch_engine"
"""Keys of the session's last chosen target and engine of deployments."""
_USUAL_NODE: Final = 8
"""GPUs of a node at most."""
_HELP: Final = "A complete configuration that starts this execution in a training framework."


def card(scenario: Scenario, execution: Mapping[Any, Any], key: str, *, is_current: bool = False) -> None:
    """Draws the card: framework, configuration, inexpressible fields, settings beyond the execution.

    key: of its widgets. is_current: True if the scenario is the one of the sentence, whose framework the card may set.
    """
    with st.container(border=True, gap="xsmall", key=f"{key}_card"):
        st.html(markup.head("Launch", "this execution as a configuration of a training framework"))
        _draw_in_fragment(scenario, dict(execution), key, is_current)


@st.fragment
def popover(
    scenario: Scenario,
    execution: Mapping[Any, Any],
    key: str,
    *,
    label: str = "Launch",
    plain: bool = False,
    is_current: bool = False,
) -> None:
    """Draws a button that opens the same; nothing is written before it is opened.

    key: of the button, and of the widgets in it. label: on the button. plain: whether it stands among links.
    is_current: as for `card`.
    """
    menu = st.popover(
        label,
        icon=":material/rocket_launch:",
        key=key,
        help=_HELP,
        on_change="rerun",
        type="tertiary" if plain else "secondary",
    )
    if menu.open:
        with menu:
            _draw_configuration(scenario, execution, key, is_current)


@st.fragment
def deployment_card(
    model: Model,
    system: System,
    deployment: Mapping[Any, Any],
    key: str,
    *,
    prefill: Mapping[Any, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Draws the card of a deployment: target, engine, files, fields that these do not say, duties of the user.

    key: of its widgets. prefill: pool that processes prompts; `deployment` then only decodes. settings: of the engine,
    that no field of the deployment says.
    """
    with st.container(border=True, gap="xsmall", key=f"{key}_card"):
        st.html(markup.head("Launch", "this deployment as commands or manifests of a serving engine"))
        with st.container(horizontal=not is_narrow(), gap="small", key=f"{key}_choices"):
            target = _choose_word("Target", launch.TARGETS, f"{key}_target", _TARGET)
            engine = target
            if target not in launch.ENGINES:
                titles = {name: each.title for name, each in launch.ENGINES.items()}
                engine = _choose_word("Engine", titles, f"{key}_engine", _ENGINE)
        try:
            made = launch.write_deployment(
                deployment,
                model,
                to=target,
                engine=engine,
                prefill=prefill,
                settings=settings,
                gpus_per_node=min(system.node_size, _USUAL_NODE),
            )
        except launch.LaunchError as refused:
            st.info(literal(str(refused)), icon=":material/block:")
            return
        draw_written(made, key)
        st.caption(
            f"For {literal(made.title)}, {literal(made.version)}. The first file has the same lists as comments."
        )


@st.fragment
def _draw_in_fragment(scenario: Scenario, execution: Mapping[Any, Any], key: str, is_current: bool) -> None:
    _draw_configuration(scenario, execution, key, is_current)


def _draw_configuration(scenario: Scenario, execution: Mapping[Any, Any], key: str, is_current: bool) -> None:
    _follow_scenario(scenario)
    framework = launch.FRAMEWORKS[_choose_framework(key)]
    try:
        made = launch.write(execution, scenario.model, framework=framework.name, nodes=_node_count(scenario, execution))
    except launch.LaunchError as refused:
        st.info(literal(str(refused)), icon=":material/block:")
        draw_framework_best(scenario, execution, framework.name, key if is_current else None)
        return
    if replaced := obstacles(scenario, execution, framework.name):
        others = f" and {len(replaced) - 3} more" if len(replaced) > 3 else ""
        words = f"{framework.title} does not run this execution as it is: {', '.join(replaced[:3])}{others}."
        st.info(literal(words), icon=":material/swap_horiz:")
        draw_framework_best(scenario, execution, framework.name, key if is_current else None)
    draw_written(made, key)
    st.caption(f"For {framework.title}, {literal(made.version)}. The file has the same lists as comments.")


def draw_written(made: launch.Written, key: str) -> None:
    """Draw the files of a configuration, and the lists of fields and settings on either side only.

    key: of its widgets.
    """
    for number, file in enumerate(made.files):
        if len(made.files) > 1:
            st.caption(literal(file.name))
        # Streamlit's dark colour for the words of a shell, such as set, is too faint to read.
        language = None if file.language == "bash" else file.language
        st.code(file.text, language=language, height=330, wrap_lines=is_narrow())
        st.download_button(
            f"Download {file.name}",
            file.text,
            file.name,
            "text/plain",
            key=f"{key}_download_{number}",
            on_click="ignore",
            icon=":material/download:",
        )
    is_deployment = isinstance(made, launch.WrittenDeployment)
    with st.container(horizontal=not is_narrow(), gap="medium", key=f"{key}_lists"):
        _draw_list(
            launch.LIST_TITLES["not_expressible"], made.not_expressible, "None: the framework supports every setting."
        )
        _draw_list(launch.LIST_TITLES["not_modelled"], made.not_modelled, "" if is_deployment else "None.")
        _draw_list("Remarks", made.remarks, "")


def _follow_scenario(scenario: Scenario) -> None:
    """Choose the framework of a scenario where the scenario has just got it."""
    last = st.session_state.get(_FOLLOWED, ANY)
    if scenario.framework not in (last, ANY):
        st.session_state[_CHOSEN] = scenario.framework
    st.session_state[_FOLLOWED] = scenario.framework


def chosen_framework() -> str:
    """Returns the name of the session's last chosen framework, on any page."""
    return str(st.session_state.get(_CHOSEN, next(iter(launch.FRAMEWORKS))))


def _choose_framework(key: str) -> str:
    """Draws the choice of a framework; returns its name. All pages of a session share it."""
    titles = {name: each.title for name, each in launch.FRAMEWORKS.items()}
    return _choose_word("Framework", titles, f"{key}_framework", _CHOSEN)


def _choose_word(label: str, titles: Mapping[str, str], widget: str, memory: str) -> str:
    """Draws a choice that all widgets of a session with the same memory share; returns the chosen name."""
    last = str(st.session_state.get(memory, next(iter(titles))))
    if st.session_state.get(widget) != last:
        st.session_state[widget] = last

    def changed() -> None:
        st.session_state[memory] = st.session_state[widget]

    chosen = st.selectbox(
        label,
        list(titles),
        key=widget,
        on_change=changed,
        width=280,
        format_func=lambda name: titles[name],
    )
    return str(chosen)


def _node_count(scenario: Scenario, execution: Mapping[Any, Any]) -> int | None:
    """Return the number of machines of the GPUs: each has as many GPUs as its fastest network, eight at most."""
    each, gpus = min(scenario.system.node_size, _USUAL_NODE), int(execution.get("num_procs", 0))
    return gpus // each if gpus and gpus % each == 0 else None


def _draw_list(heading: str, sentences: Sequence[str], none: str) -> None:
    """A list under its heading; without any, the sentence that says so, and nothing at all without that."""
    if not sentences and not none:
        return
    with st.container(gap="xxsmall", width="stretch"):
        st.html(markup.head(heading))
        if sentences:
            st.caption("\n".join(f"- {literal(each)}" for each in sentences))
        else:
            st.caption(none)
