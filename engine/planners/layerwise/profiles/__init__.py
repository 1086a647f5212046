"""Layer profiles: how they are read and checked, examples that come along, and the states in which they may be cut."""
