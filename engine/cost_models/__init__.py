"""The cost models: what each can tell of an execution, behind one contract, found in one registry."""
