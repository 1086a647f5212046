"""Post-training: iterations of reinforcement learning, their rollouts, memory by phase and splits of GPUs."""
