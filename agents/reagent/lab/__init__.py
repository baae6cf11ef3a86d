"""The lab: two generated environments for two CPU cores, and policies and a judge trained on them."""
