"""The browser interface: pages, charts, and what they share."""
