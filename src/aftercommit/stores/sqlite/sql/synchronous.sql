-- When a commit waits for the disk: 2, at each.
PRAGMA synchronous
