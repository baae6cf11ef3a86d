"""YAML without aliases, of which a few lines can stand for gigabytes."""

from __future__ import annotations

from typing import Any

import yaml


class _Plain(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="an alias (*name): write what it stands for", problem_mark=mark)
        return super().compose_node(parent, index)


def plain_yaml(text: str) -> Any:
    """Parse a text; raises `YAMLError`, also for an alias."""
    return yaml.load(text, Loader=_Plain)
