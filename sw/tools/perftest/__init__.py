"""perftest's programs: ``ib_write_bw`` and its kin, each as a server and as a client.

:mod:`.kinds` names them, :mod:`.options` has what they can be told, :mod:`.play` is the course of a test on one side,
:mod:`.messages`, :mod:`.bandwidth` and :mod:`.latency` its messages, :mod:`.report` what it prints.
"""
