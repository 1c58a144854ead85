-- Nothing of what was done since is left.
ROLLBACK TO SAVEPOINT aftercommit_inbox
