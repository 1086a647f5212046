"""Types that public functions of Streamlit return, but that have no public name, and the styled tables of pandas.

Checked with Streamlit 1.67.0.
"""

from __future__ import annotations

from pandas.io.formats.style import Styler as StyledTable
from streamlit.delta_generator import DeltaGenerator as Place
from streamlit.runtime.uploaded_file_manager import UploadedFile

__all__ = ["Place", "StyledTable", "UploadedFile"]
