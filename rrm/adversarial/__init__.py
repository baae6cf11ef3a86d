"""Attack a judge: transcripts whose text tries to write the verdict (`rrm.adversarial.attack`)."""

from rrm.adversarial.attack import AdversarialReport, AttackCase, attacks, escapes, measure
from rrm.adversarial.texts import Payload

__all__ = ["AdversarialReport", "AttackCase", "Payload", "attacks", "escapes", "measure"]
