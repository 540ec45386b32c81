"""Lives of connections share no PSN with those before them."""

import random

import pytest
from verbena.sim.soak.lives import APART, PSNS, REMEMBERED, Lives


def test_the_last_lives_of_a_number_are_far_away():
    """Of all directions, with whatever peer; and PSNs wrap in many lives, or begin at 0."""
    source = random.Random(1)
    lives = Lives(source)
    history = {key: [] for key in "abcd"}
    seen = set()
    for _ in range(600):
        keys = source.sample("abcd", 2)
        for _ in (0, 1):
            psn, count = lives.choose(*keys), source.choice((1, 100, 50_000))
            for key in keys:
                for first, used in history[key][-2 * REMEMBERED :]:
                    assert (psn - first) % PSNS >= used
                    assert (first - psn) % PSNS >= APART
            lives.ended(psn, count, *keys)
            for key in keys:
                history[key].append((psn, count))
            seen.add(psn)
    assert {0, PSNS - 16} < seen


def test_when_all_are_used_up_it_is_told():
    lives = Lives(random.Random(1))
    lives.ended(0, PSNS - APART, "a")
    with pytest.raises(ValueError, match="used up all PSNs"):
        lives.choose("a", "b")
