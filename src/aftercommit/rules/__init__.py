"""Pure decisions: values in, values out. No await, no lock, no clock, no I/O."""
