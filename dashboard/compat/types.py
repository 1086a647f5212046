"""Types of libraries that have no public name, but are what public functions return.

Checked with Streamlit 1.67.0 and pandas 3.1.1.
"""

from __future__ import annotations

from pandas.io.formats.style import Styler as StyledTable
from streamlit.delta_generator import DeltaGenerator as Place

__all__ = ["Place", "StyledTable"]
