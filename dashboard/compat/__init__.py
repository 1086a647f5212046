"""Everything that leans on the inside of a library: why, with which version it was checked, and a test that tells.

Modules of Streamlit's inside are apart from those of other libraries, so that charts and words import none of it.
"""
