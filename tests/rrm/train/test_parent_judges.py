"""The judges that a run goes on from."""

from __future__ import annotations

import pytest

from rrm.config import TrainConfig
from rrm.train.parent_judges import earlier_of


def test_a_base_that_cannot_be_looked_up_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was said: whatever questions it was trained on, the run counted as met by none."""
    config = TrainConfig.model_validate({"model": {"base": "no..such--/name"}})  # no name that a hub has
    assert earlier_of(config).questions == []
    assert "whether no..such--/name is a judge" in caplog.text
