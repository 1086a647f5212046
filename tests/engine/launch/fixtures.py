"""Published launch scripts, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "reference" / "frameworks"
ALL: list[dict[str, Any]] = json.loads((FOLDER / "fixtures.json").read_text("utf-8"))["fixtures"]


def of(framework: str) -> list[Any]:
    """The fixtures of a framework, as parameters of a test."""
    return [pytest.param(each, id=each["id"]) for each in ALL if each["framework"] == framework]
