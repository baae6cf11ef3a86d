"""`command:`: a chat model behind a program."""

import os
import time
from pathlib import Path

import pytest
from travelling_judge import ROWS

from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM


def test_a_program_judges_or_fails_or_is_refused() -> None:
    for program, said in (
        (r"""sh -c 'printf "\033[1m<critique>$(head -c 9)</critique><score>0.7</score>"'""", "scored 0.7 You judge"),
        ("sh -c 'echo no key >&2; exit 3'", "judge_error None None sh: exit code 3: no key"),
        ("sleep 9", "timed out after 2.0 seconds"),
    ):
        judge = AgentRRM.from_pretrained(f"command:{program}", timeout_s=2.0)
        for found in judge.judge(ROWS[:2], mode="critique"):
            assert said in f"{found.status} {found.score} {found.critique} {found.reason}"
    for model in ("command:", "command:no-such-program", "command:cat 'x"):
        with pytest.raises(ConfigError, match="command:"):
            AgentRRM.from_pretrained(model)


def test_what_a_program_started_ends_with_it_and_what_it_writes_is_bounded(tmp_path: Path) -> None:
    def why(program: str) -> str | None:
        (found,) = AgentRRM.from_pretrained(f"command:{program}", timeout_s=2.0).judge(ROWS[:1], mode="critique")
        return found.reason

    pid = tmp_path / "pid"
    assert "timed out" in str(why(f"sh -c 'sleep 60 & echo $! >{pid}; wait'"))
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(int(pid.read_text()), 0)
            time.sleep(0.02)
    assert "wrote more than 16 MB" in str(why("sh -c 'head -c 20000000 /dev/zero; sleep 1'"))


def test_secrets_in_its_arguments_are_written_nowhere() -> None:
    judge = AgentRRM.from_pretrained("command:cat --model m --api-key abcdefgh12345678 --token=zyxwvut9 -k")
    assert judge.model == "command:cat --model m --api-key '[removed]' '--token=[removed]' -k"
    assert "abcdefgh" not in str(judge.describe()) + str(judge.settings)
    assert AgentRRM.from_pretrained('command:cat "x y"').model == 'command:cat "x y"'
