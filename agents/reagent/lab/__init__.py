"""The lab: two generated environments small enough for two CPU cores, and demonstrations to start a policy from."""
