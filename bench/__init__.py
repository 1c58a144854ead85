"""The benchmarks: the outbox beside the same work in hand-written SQL, in one run, rounds in turn.

`python -m bench` prints ratios and saves them; absolute figures belong to the machine that made them.
"""
