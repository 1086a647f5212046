"""Types that public functions of libraries return, but that have no public name.

Checked with Streamlit 1.67.0 and pandas 3.1.1.
"""

from __future__ import annotations

from pandas.io.formats.style import Styler as StyledTable
from streamlit.delta_generator import DeltaGenerator as Place

__all__ = ["Place", "StyledTable"]
