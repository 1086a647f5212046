"""What pages ask of explorations."""
