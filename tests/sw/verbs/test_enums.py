"""The older name."""

from verbena.sw.verbs import enums, libibverbs_enums


def test_it_is_all_there():
    for name in libibverbs_enums.__all__:
        assert getattr(enums, name) is getattr(libibverbs_enums, name)
