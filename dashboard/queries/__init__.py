"""Questions of pages about explorations."""
