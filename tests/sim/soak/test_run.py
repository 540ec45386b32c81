"""What the soak may rely on."""

import random

from verbena.sim.soak.run import first_psn


def test_lives_share_no_psn():
    """Frames of the life before are not taken for the new one's; and PSNs wrap in many lives, or begin at 0."""
    source = random.Random(1)
    psn, seen = first_psn(source), set()
    for _ in range(1000):
        before, psn = psn, first_psn(source, psn)
        assert min((psn - before) % (1 << 24), (before - psn) % (1 << 24)) >= 1 << 22
        seen.add(psn)
    assert {0, 0xFFFFF0} < seen
