"""The browser interface: pages, charts, and shared parts."""
