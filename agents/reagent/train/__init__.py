"""Training an agent: the trainer, its policy, config, checkpoints and evaluation."""
