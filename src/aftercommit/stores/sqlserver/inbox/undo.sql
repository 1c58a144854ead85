-- Nothing of what was done since is left.
ROLLBACK TRANSACTION aftercommit_inbox
