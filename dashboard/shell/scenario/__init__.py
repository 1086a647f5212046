"""The scenario above every page as one sentence, and the widgets that change it."""
