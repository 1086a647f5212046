"""Serving against measurements: constants fitted to measured kernels and servers, and errors of held-out ones."""
