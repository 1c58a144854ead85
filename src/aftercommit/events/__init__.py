"""The words: values that every room uses."""
