"""What must come of the operations of a flow."""

from verbena.sw import host_memory
from verbena.sw.verbs.libibverbs_enums import ibv_wc_flags, ibv_wc_status

from .model import Difference, first_difference

__all__ = ["Completions"]

S = ibv_wc_status

LOCAL = frozenset((S.IBV_WC_LOC_PROT_ERR, S.IBV_WC_GENERAL_ERR))
"""Failures that need no answer: also a request behind the first failure may have met one before the flush."""


class Completions:
    """The half of a :class:`.flow.Flow` that takes completions, and compares memory with the model."""

    def sent(self, wc):
        """A completion of the send queue: in order, and after the first failure every request is flushed, or tells of a
        local failure of its own.
        """
        open_ = self.model.open
        if self.dead:
            fates = next((op.fates for op in open_ if op.number == wc.wr_id), frozenset())
            allowed = {S.IBV_WC_WR_FLUSH_ERR} | (LOCAL & (fates | self.connection.extra))
            if wc.wr_id != self.flushed or wc.status not in allowed:
                raise Difference(f"{self.name}: {wc} where the flush of {self.flushed} should be")
            self.flushed += 1
            return
        while open_ and open_[0].number != wc.wr_id:
            if open_[0].signaled:
                raise Difference(f"{self.name}: {wc} came before {open_[0].name} {open_[0].number} was complete")
            self._finish(open_.popleft())
        if not open_:
            raise Difference(f"{self.name}: {wc} is of no operation that is open")
        op = open_[0]
        if wc.status == S.IBV_WC_SUCCESS:
            if op.fates:
                raise Difference(f"{self.name}: {wc} for {op.name}, which must be refused")
            self._finish(open_.popleft())
            return
        allowed = self.connection.statuses(op, list(open_)[1:])
        if wc.status not in allowed:
            names = ", ".join(status.name for status in sorted(allowed))
            raise Difference(f"{self.name}: {wc} for {op.name}, where success or {names} could be")
        self.dead, self.flushed = True, wc.wr_id + 1
        self.connection.broke(S(wc.status).name)

    def _finish(self, op):
        if op.fates:
            raise Difference(f"{self.name}: {op.name} {op.number} must be refused, and what is behind it is complete")
        self.space.head = self.marks.pop(op.number)
        self.done += 1
        if op.reads:
            found = b"".join(host_memory.read(a, n) for a, n in op.pieces)
            at = first_difference(op.result, found)
            if at is not None:
                raise Difference(
                    f"{self.name}: {op.name} {op.number} of {len(found)} bytes at {op.remote[0]:#x}: "
                    f"byte {at} is {found[at]:#04x}, not {op.result[at]:#04x}"
                )

    def arrived(self, wc):
        """A completion of the peer's receive queue."""
        what = f"receive {self.received} of {self.name}"
        if wc.wr_id != self.received:
            raise Difference(f"{what}: {wc} came")
        pieces, self.receive_space.head = self.receives.pop(self.received)
        self.received += 1
        if wc.status == S.IBV_WC_WR_FLUSH_ERR or (wc.status and wc.status in self.connection.receive_statuses):
            self.flushing = True
            return
        if wc.status or self.flushing or not self.model.messages:
            raise Difference(f"{what}: {wc}, with {len(self.model.messages)} messages under way")
        data, immediate, name = self.model.messages.popleft()
        flag = wc.wc_flags & ibv_wc_flags.IBV_WC_WITH_IMM
        if wc.byte_len != len(data) or bool(flag) != (immediate is not None) or (flag and wc.imm_data != immediate):
            raise Difference(f"{what}: {wc} for a {name} of {len(data)} bytes, immediate {immediate}")
        if name == "RDMA_WRITE_WITH_IMM":
            return
        found = b"".join(host_memory.read(a, n) for a, n in pieces)[: len(data)]
        at = first_difference(data, found)
        if at is not None:
            raise Difference(f"{what}: {name} of {len(data)} bytes: byte {at} is {found[at]:#04x}, not {data[at]:#04x}")

    @property
    def quiet(self):
        return not self.model.open

    @property
    def flushed_all(self):
        """After a failure: every completion that must come has come."""
        return self.dead and self.flushed == self.next and self.received == self.posted

    def check(self):
        """Nothing is under way: the slice is the model's."""
        self.model.check(self.content(), f"slice of {self.name}")

    def settle(self):
        """The life is over, and both queue pairs are in RESET."""
        self.model.settle(self.content(), f"slice of {self.name}")

    def content(self):
        """The slice as memory has it."""
        return host_memory.read(self.slice, len(self.model.memory))
