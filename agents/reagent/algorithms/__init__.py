"""The mathematics of learning: advantages and losses, pure functions of tensors."""
