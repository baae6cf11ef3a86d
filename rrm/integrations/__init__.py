"""The judge inside other trainers and evaluation harnesses (docs/integrations.md)."""
