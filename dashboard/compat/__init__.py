"""Everything that leans on a library's internals."""
