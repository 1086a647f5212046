"""The page frame and the navigation, and the server around them; every page is a package in `dashboard/pages`.

Streamlit runs this file twice over: once as a server, to which files to download are added, and then as a script for
every visitor. Only the script imports the pages' modules, whose caches need a server that runs.
"""

from pathlib import Path

import streamlit as st

ROOT = Path(__file__).parent

if __name__ != "__main__":  # Streamlit runs scripts under this name, and imports the server under another
    import os

    from starlette.middleware import Middleware

    from dashboard.compat.message_queue import keep_whole
    from dashboard.compat.session_values import listed_while_they_change
    from dashboard.files import downloads, plotly_library
    from dashboard.settings import settings_from
    from dashboard.shell import bodies, middleware, root_address, unknown_address

    keep_whole()
    listed_while_they_change()
    settings, api = settings_from(os.environ), []
    if settings.api:
        from dashboard.shell import json_api

        api = json_api.routes(json_api.JsonApi(settings))
    app = st.App(
        __file__,
        routes=[*downloads.routes(), *plotly_library.routes(), *api, *root_address.routes()],
        middleware=[
            Middleware(middleware.Framed, metrics=settings.metrics),
            Middleware(bodies.BoundedBodies),
            Middleware(unknown_address.NamedPages),
        ],
        lifespan=middleware.greeting,
    )
else:
    from dashboard.compat.reconnection import known_again
    from dashboard.jobs.turns import turns
    from dashboard.link import state
    from dashboard.shell import frame, login

    st.set_page_config(page_title="Shardscape", page_icon=str(ROOT / "static" / "mark.svg"), layout="wide")
    login.require()
    page = frame.navigation()
    state.begin(page.url_path)
    known_again()
    with turns.turn():
        above = frame.open_page(ROOT / "static", page)
        page.run()
        frame.close_page(above)
    login.signed_in()
