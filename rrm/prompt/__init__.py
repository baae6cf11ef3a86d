"""The prompts of a judge: rendering within a budget, disarmed text, the format of each mode."""
