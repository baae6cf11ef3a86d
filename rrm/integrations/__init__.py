"""The judge inside other trainers and evaluation harnesses (docs/integrations.md). A module that is made for a framework is imported by
its users and by its own kin here; what asks a judge (`asking`, `loading`) serves the guard, too."""
