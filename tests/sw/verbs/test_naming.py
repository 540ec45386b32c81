"""Names of numbers."""

from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wc_status
from verbena.sw.verbs.naming import flags_of, name_of, names_of


def test_a_name_or_the_number():
    assert name_of(ibv_wc_status, 5) == "IBV_WC_WR_FLUSH_ERR"
    assert name_of(ibv_wc_status, 99) == "99"


def test_flags():
    assert names_of(ibv_send_flags, 3) == ["IBV_SEND_FENCE", "IBV_SEND_SIGNALED"]
    assert flags_of(ibv_send_flags, 3) == "IBV_SEND_FENCE|IBV_SEND_SIGNALED"
    assert flags_of(ibv_send_flags, 0) == "0"
    assert flags_of(ibv_send_flags, 0x102) == "IBV_SEND_SIGNALED|0x100"
    assert flags_of(ibv_send_flags, 0x300) == "0x300"
