"""What host and engine agree on: plain Python, no third-party package.

Records (:mod:`.wqe`, :mod:`.cqe`, :mod:`.eqe`, :mod:`.tables`, :mod:`.contexts`), the register map (:mod:`.registers`)
and the commands
(:mod:`.commands`). Hardware layouts (:mod:`verbena.hdl.stream.record`), the driver's packing
(:meth:`.record.Record.pack`), the C header and
the documentation's tables derive from these descriptions; nothing of them is written twice.
"""
