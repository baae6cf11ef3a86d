"""A transcript becomes what a judge reads: rendering within a budget, disarmed text, the prompt of each mode."""
