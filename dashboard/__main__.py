"""The process of the dashboard's server: Streamlit's command, which ends with our exit code after Ctrl-C.

python -m dashboard run app.py --server.port=8501
"""

from __future__ import annotations

from dashboard.shell.command import INTERRUPTED, end_at_once
from dashboard.shell.interrupts import run_streamlit

if __name__ == "__main__":
    end_at_once()
    run_streamlit(INTERRUPTED)
