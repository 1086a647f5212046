"""State that outlives a page: the scenario and the view as a link, and users' files."""
