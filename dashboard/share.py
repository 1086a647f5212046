"""Sharing: a link to exactly what is shown, and the scenario as a file."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from dashboard import state
from engine import Scenario

__all__ = ["document", "file_name", "link", "opener"]

LONGEST: Final = 8_000
"""Characters of a link that browsers, proxies and chat programs pass on."""


def opener() -> None:
    """Draws Share and Save."""
    with st.popover("Share", type="tertiary", icon=":material/link:", help="A link to exactly what is shown."):
        text = link()
        if len(text) <= LONGEST:
            st.caption("Whoever opens this link against a Shardscape server sees what you see.")
            st.code(text, language=None, wrap_lines=True)
        else:
            st.caption(f"The link would have {len(text):,} characters, too many to travel safely. Send the file.")
        _download("Scenario file", "share_file")
    with st.popover("Save", type="tertiary", icon=":material/bookmark:", help="Keep this scenario."):
        st.caption("The file holds model, system and limits whole; any Shardscape can open it.")
        _download("Save scenario file", "save_file")


def link() -> str:
    """The address of what is shown."""
    parts = urlsplit(st.context.url or "http://localhost/")
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(state.link_parameters()), ""))


def document(scenario: Scenario) -> bytes:
    """The scenario as a JSON file."""
    return (json.dumps(scenario.to_document(), indent=2, ensure_ascii=False) + "\n").encode()


def file_name(scenario: Scenario, suffix: str) -> str:
    """A name for a file about a scenario, of harmless characters."""
    text = f"{scenario.model.name}_{scenario.num_procs}x{scenario.system.name}_{scenario.datatype}"
    return re.sub(r"[^\w.-]+", "-", text)[:100] + suffix


def _download(label: str, key: str) -> None:
    scenario = state.current_scenario()
    st.download_button(
        label, lambda: document(scenario), file_name(scenario, ".json"), "application/json", key=key,
        on_click="ignore", icon=":material/download:",
    )  # fmt: skip
