"""The server: the pages, which `main.py` frames, and beside them the files to download."""

import streamlit as st

from dashboard.downloads import routes

app = st.App("main.py", routes=routes())
