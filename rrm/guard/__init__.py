"""A guard beside a running agent: judges what it did so far after each step and says `continue`, `halt` or `ask` (docs/guard.md)."""

from __future__ import annotations

from rrm.guard.audit import AuditRow, read_audit
from rrm.guard.guard import Guard, GuardSession, GuardVerdict
from rrm.guard.policy import Action, GuardPolicy

__all__ = ["Action", "AuditRow", "Guard", "GuardPolicy", "GuardSession", "GuardVerdict", "read_audit"]
