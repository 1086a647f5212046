"""Wrappers for private APIs and undocumented behaviour of libraries: reason, version checked, guarding test.

Names that are not public, and why each remains:

- `message_queue`: `ForwardMsgQueue.clear` drops parents of elements that a browser still needs; no option keeps them.
- `session_values`: `SessionState._keys` fails while two runs of a session change it. `runner.fastReruns = false` would
  avoid that, but a click would then wait until the abandoned run next calls Streamlit.
- `session`: no public API says that the browser went back in its history.
- `types`: public functions return types without public names.
- `front_end`, `streamlit.css`: names of elements and files of the front end, for looks that no theme option has.

The others use public names only: `caches`, `plotly_figures` and `reconnection` by documented functions, `markdown_text`
by what Streamlit's Markdown replaces. Modules for Streamlit are separate from others, so that charts and words do not
import Streamlit.
"""
