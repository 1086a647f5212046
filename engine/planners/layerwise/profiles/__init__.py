"""Layer profiles: reading, checks, examples, and the states at which they may be cut."""
