"""The judge of relays sees what it is there for: stories that somebody has tampered with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.promises.journal import Line
from tests.promises.relayed import BROKER, Copy, judged

ONE, OTHER = 1001, 1002


class Tale:
    """What a journal and a broker say, told step by step. Each process has one connection."""

    def __init__(self) -> None:
        self.written = {"k": list(range(6)), "l": list(range(3))}
        self.copies: list[Copy] = []
        self.lines: list[Line] = []
        for pid in (ONE, OTHER):
            self.say(pid, "opened", f"{pid}.1")

    def say(self, pid: int, kind: str, what: str, number: int = -1) -> None:
        self.lines.append(Line(float(len(self.lines)), pid, kind, what, number))

    def sends(self, pid: int, key: str, *numbers: int, answer: str = "stored", arrives: bool = True) -> None:
        for number in numbers:
            self.say(pid, "sent", f"{pid}.1/{key}", number)
            if arrives:
                self.copies.append(Copy(f"{pid}.1", key, number))
            if answer:
                self.say(pid, answer, f"{pid}.1/{key}", number)

    def happens(self, what: str, pid: int) -> None:
        self.say(7, "trouble", what, pid)
        self.say(7, "over", "", pid)

    def ends(self) -> None:
        """As the rest of an honest one."""
        self.sends(OTHER, "l", 0, 1, 2)

    def wrong(self, held: int = 10) -> str:
        return "\n".join(judged(self.written, self.copies, self.lines, held=held).wrong)


def honest() -> Tale:
    tale = Tale()
    tale.sends(ONE, "k", 0, 1)
    tale.sends(ONE, "k", 2, answer="")
    tale.happens("process", ONE)
    tale.sends(OTHER, "k", 2, 3, 4)
    tale.sends(OTHER, "k", 5, answer="away")
    tale.happens("cut", BROKER)
    tale.sends(OTHER, "k", 5)
    tale.ends()
    return tale


def test_an_honest_story_passes() -> None:
    tale = honest()
    verdict = judged(tale.written, tale.copies, tale.lines, held=10)
    assert verdict.wrong == []
    assert (verdict.events, verdict.copies, verdict.repeated) == (9, 11, {"process": 1, "cut": 1})


def lose(tale: Tale) -> None:
    tale.copies = [copy for copy in tale.copies if (copy.key, copy.number) != ("k", 3)]


def lose_the_last(tale: Tale) -> None:
    tale.copies.pop()


def lose_a_key(tale: Tale) -> None:
    tale.copies = [copy for copy in tale.copies if copy.key != "l"]


def invent(tale: Tale) -> None:
    tale.sends(OTHER, "l", 3)


def swap(tale: Tale) -> None:
    tale.copies[0], tale.copies[1] = tale.copies[1], tale.copies[0]


def swap_what_came_again(tale: Tale) -> None:
    """The first copies are in order; those of the other process are not as it sent them."""
    found = [number for number, copy in enumerate(tale.copies) if copy.connection == f"{OTHER}.1" and copy.key == "k"]
    tale.copies[found[0]], tale.copies[found[1]] = tale.copies[found[1]], tale.copies[found[0]]


def double(tale: Tale) -> None:
    """The broker has more than was sent."""
    tale.copies.append(tale.copies[-1])


def send_again(tale: Tale) -> None:
    tale.sends(OTHER, "l", 2)


def send_again_elsewhere(tale: Tale) -> None:
    tale.sends(ONE, "l", 2)


def send_again_what_was_stored(tale: Tale) -> None:
    """A broker that restarts explains nothing that it has confirmed."""
    tale.happens("restart", BROKER)
    tale.sends(OTHER, "l", 2)


def be_told_too_late(tale: Tale) -> None:
    """Somebody else lost a lease."""
    tale.say(ONE, "lost", "It")
    tale.sends(OTHER, "l", 2)


def go_back(tale: Tale) -> None:
    """After a fault all of a key may come again, but in order."""
    tale.happens("process", OTHER)
    tale.sends(OTHER, "l", 1, 0)


def refuse(tale: Tale) -> None:
    tale.say(OTHER, "sent", f"{OTHER}.1/l", 2)
    tale.say(OTHER, "refused", f"{OTHER}.1/l", 2)


def forget_the_kill(tale: Tale) -> None:
    tale.lines = [line for line in tale.lines if line.number != ONE]


def forget_the_cut(tale: Tale) -> None:
    tale.lines = [line for line in tale.lines if line.kind not in ("trouble", "over") or line.number != BROKER]


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (lose, "lost: k [3]"),
        (lose_the_last, "lost: l [2]"),
        (lose_a_key, "lost: l [0, 1, 2]"),
        (invent, "never written: l [3]"),
        (swap, "out of order: k"),
        (swap_what_came_again, "stored otherwise than sent"),
        (double, "stored otherwise than sent"),
        (send_again, "sent again for no reason: ('l', 2)"),
        (send_again_elsewhere, "sent again for no reason: ('l', 2)"),
        (send_again_what_was_stored, "sent again for no reason: ('l', 2)"),
        (be_told_too_late, "sent again for no reason: ('l', 2)"),
        (go_back, "l 0 sent after 1"),
        (refuse, "refused"),
        (forget_the_kill, "sent again for no reason: ('k', 2)"),
        (forget_the_cut, "sent again for no reason: ('k', 5)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_story_that_was_tampered_with_does_not(tamper: Callable[[Tale], None], found: str) -> None:
    tale = honest()
    tamper(tale)
    assert found in tale.wrong()


def test_a_fault_explains_no_more_than_was_on_the_way() -> None:
    tale = Tale()
    tale.sends(ONE, "k", *range(6))
    tale.ends()
    tale.happens("process", ONE)
    tale.sends(OTHER, "k", *range(6))
    assert tale.wrong(held=6) == ""
    assert "6 events came again" in tale.wrong(held=5)


def test_a_lease_that_was_lost_explains_what_was_sent_before() -> None:
    tale = honest()
    tale.sends(ONE, "l", 2)
    tale.say(ONE, "lost", "It")
    assert tale.wrong() == ""
