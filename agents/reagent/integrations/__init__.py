"""Environments of this package inside other trainers (docs/integrations.md)."""
