"""All work off the page, shared by all sessions of a server."""
