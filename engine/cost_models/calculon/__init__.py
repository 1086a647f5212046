"""The exact cost model: Calculon 0.1.0 to the last digit, with its quirks."""
