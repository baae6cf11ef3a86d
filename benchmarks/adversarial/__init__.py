"""Attack a judge: transcripts whose text tries to write the verdict (`benchmarks.adversarial.attack`)."""

from benchmarks.adversarial.attack import AdversarialReport, AttackCase, attacks, escapes, measure
from benchmarks.adversarial.texts import Payload

__all__ = ["AdversarialReport", "AttackCase", "Payload", "attacks", "escapes", "measure"]
