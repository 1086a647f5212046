"""The page frame and the navigation; every page is a script in `dashboard/pages`."""

from pathlib import Path

import streamlit as st

from dashboard import frame, login, state

ROOT = Path(__file__).parent

st.set_page_config(page_title="Shardscape", page_icon=str(ROOT / "static" / "mark.svg"), layout="wide")
login.require()
page = st.navigation(frame.pages(), position="top")
state.begin(page.url_path)
above = frame.open_page(ROOT / "static", page)
page.run()
frame.close_page(above)
login.signed_in()
