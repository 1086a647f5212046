"""Charts of other machines and budgets: one or two parameters swept, every size, and designs of a study."""
