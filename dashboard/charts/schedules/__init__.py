"""Charts of pipeline schedules: who does what when, what each rank holds, and schedules along a parameter."""
