"""What outlives a page: the scenario and the view as a link, and files that people keep."""
