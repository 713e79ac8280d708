import pytest

from headrace.clock import Clock, ManualClock, SystemClock
from headrace.errors import BadInput


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock(5)])
def test_clocks_keep_the_protocol(clock):
    assert isinstance(clock, Clock)
    before = clock.now()
    clock.sleep(0.001)
    assert clock.now() >= before + 0.001


def test_a_manual_clock_moves_only_when_told():
    clock = ManualClock(10)
    assert clock.now() == clock.now() == 10.0
    clock.advance(2.5)
    clock.sleep(1)
    assert clock.now() == 13.5


def test_a_clock_does_not_go_back():
    with pytest.raises(BadInput, match="does not go back"):
        ManualClock().advance(-1)
