"""From write() to the INSERT and the commit."""
