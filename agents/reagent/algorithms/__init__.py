"""Policy-gradient algorithms as pure functions on tensors, one short file each, and their registry."""
