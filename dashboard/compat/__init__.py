"""Wrappers for private APIs of libraries: reason, version checked, guarding test.

Modules for Streamlit are separate from others, so that charts and words do not import Streamlit.
"""
