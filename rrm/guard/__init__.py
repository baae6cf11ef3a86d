"""Guards of running agents judge the run after each step (docs/guard.md)."""

from __future__ import annotations

from rrm.guard.audit import AuditRow, read_audit
from rrm.guard.guard import Guard, GuardSession, GuardVerdict
from rrm.guard.policy import Action, GuardPolicy

__all__ = ["Action", "AuditRow", "Guard", "GuardPolicy", "GuardSession", "GuardVerdict", "read_audit"]
