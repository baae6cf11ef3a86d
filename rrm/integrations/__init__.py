"""The judge inside other trainers and evaluation harnesses (docs/integrations.md). Each module imports its framework itself; none of
them is imported by anything else here."""
