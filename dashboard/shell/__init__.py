"""What surrounds every page: frame, navigation, login, and where the command begins."""
