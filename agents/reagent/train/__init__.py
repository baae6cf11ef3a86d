"""Training of agents: configs, the trainer and its run folder, guards, evaluation, distillation."""
