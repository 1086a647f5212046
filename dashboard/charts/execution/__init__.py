"""Charts of one execution: where time and memory go, which limit its layers meet, and which networks it uses."""
