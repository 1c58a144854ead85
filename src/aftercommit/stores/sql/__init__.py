"""The one SQL store, over whichever driver."""
