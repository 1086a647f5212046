"""The page frame and the navigation, and the server around them; every page is a script in `dashboard/pages`.

Streamlit runs this file twice over: once as a server, to which files to download are added, and then as a script for
every visitor. Only the script imports the pages' modules, whose caches need a server that runs.
"""

from pathlib import Path

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

ROOT = Path(__file__).parent

if get_script_run_ctx(suppress_warning=True) is None:
    from starlette.middleware import Middleware

    from dashboard.compat.memory_allocator import few_arenas
    from dashboard.files import downloads
    from dashboard.shell import middleware, root_address

    few_arenas()
    middleware.ask_nobody()
    app = st.App(
        __file__,
        routes=[*downloads.routes(), *root_address.routes()],
        middleware=[Middleware(middleware.Framed)],
        lifespan=middleware.greeting,
    )
else:
    from dashboard.jobs.turns import turns
    from dashboard.link import state
    from dashboard.shell import frame, login, reconnection

    st.set_page_config(page_title="Shardscape", page_icon=str(ROOT / "static" / "mark.svg"), layout="wide")
    login.require()
    page = st.navigation(frame.pages(), position="top")
    state.begin(page.url_path)
    reconnection.known_again()
    with turns.turn():
        above = frame.open_page(ROOT / "static", page)
        page.run()
        frame.close_page(above)
    login.signed_in()
