"""Frame of the pages: navigation, login, server routes, and the command."""
