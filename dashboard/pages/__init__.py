"""One package per page, independent of each other."""
